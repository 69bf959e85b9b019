"""The dashboard's files: third-party files as they were published, and the headers of all files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from services.dashboard.pages import CONTENT_SECURITY_POLICY, HERE, REFERENCE_POLICY
from storage.session import Store
from tests.api_server import api_of

VENDORED = {
    "d3.min.js": "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1",
    "htm.umd.js": "7a31776e04bd4afde0d4308177d26f377716fcf7e4bd70be590746d6aa594f08",
    "katex-auto-render.min.js": "e5372d199bcdae8b4de71d0f7ceba72a4ba12774a27c60a6f1f77d03b3228ee4",
    "katex.min.js": "fa140498b8cfc8302cbe5e7cb1bdbc1f952bc38b3fa258ede09e73edbf9a74bc",
    "preact-hooks.umd.js": "c2a0121123419a0788e7a3e0adde79f9f9dc9d455c918abbfe6f74651b4be054",
    "preact.min.umd.js": "b3c0d9e2c09b1c62925cb0f0055e5f354f360345ac5ffbf8b8367585e4e271b4",
    "plot.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
    "redoc.standalone.js": "dcaf76612bc4a3fbcc923a8966dee2f6146a5f32e5ce1b6f02dd60cbbf89500b",
    "katex.min.css": "00e0b094171b07f58422075f469b4feac2b2f7bce1aeec943c08da4d697f4dcf",
}
_INLINE = r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|https?://"
_LOADED = r'(?:src|href)="(/(?:static|vendor)/[^"]+)"'
PAGES = ("/", "/compare", "/alerts", "/label", "/runs/demo", "/runs/demo/2", "/runs/demo/2/17", "/runs/demo/2/label")


@pytest.fixture
def api(sqlite: Store, tmp_path: Path) -> TestClient:
    return api_of(sqlite, tmp_path)


def test_third_party_files_are_unchanged_and_documented() -> None:
    vendor = HERE / "vendor"
    checksums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendor.glob("*.*s")}
    assert checksums == VENDORED
    about = (vendor / "README.md").read_text()
    named = [*VENDORED, *(f"licences/{path.name}" for path in vendor.glob("licences/*"))]
    assert [name for name in named if f"`{name}`" not in about] == []


@pytest.mark.parametrize("path", PAGES)
def test_every_path_serves_the_same_page(api: TestClient, path: str) -> None:
    response = api.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert response.headers["x-content-type-options"] == "nosniff"


def test_the_api_reference_is_a_page_that_loads_only_files_of_this_server(api: TestClient) -> None:
    response = api.get("/api/docs")
    assert (response.status_code, response.headers["content-security-policy"]) == (200, REFERENCE_POLICY)
    assert re.findall("unsafe|http", REFERENCE_POLICY + CONTENT_SECURITY_POLICY) == []
    assert re.findall(_INLINE, response.text) == []
    loaded = re.findall(_LOADED, response.text)
    assert "/vendor/redoc.standalone.js" in loaded
    assert {api.get(path).status_code for path in loaded} == {200}


def test_every_file_that_a_page_loads_exists(api: TestClient) -> None:
    scripts = "\n".join(path.read_text() for path in (HERE / "static").rglob("*.js"))
    fonts = re.findall(r"fonts/[\w-]+\.woff2", (HERE / "vendor/katex.min.css").read_text())
    loaded = {
        *re.findall(_LOADED, (HERE / "static" / "index.html").read_text()),
        *(f"/vendor/{font}" for font in fonts),
    }
    loaded |= set(re.findall(r'from "(/static/[^"]+)"', scripts))
    assert len(loaded) > 20
    for path in sorted(loaded):
        response = api.get(path)
        assert (path, response.status_code) == (path, 200)
        assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY


def test_pages_have_no_inline_code_and_load_nothing_from_other_servers() -> None:
    """The content security policy would block it, and the reason would be hard to find."""
    assert re.findall(_INLINE, (HERE / "static" / "index.html").read_text()) == []
    of_text = r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    scripts = [*(HERE / "static").rglob("*.js")]
    assert [path for path in scripts if re.findall(of_text, path.read_text())] == []


def test_no_path_serves_a_file_outside_the_folders(api: TestClient) -> None:
    for path in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/vendor/..%2f..%2fpages.py"):
        assert api.get(path).status_code == 404
