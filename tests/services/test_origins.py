"""The API refuses requests that another site's page makes in a user's browser."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from api_examples import fill
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from services.api.access.keys import new_key
from services.api.app import PREFIX, create_app
from storage.rows import Scope
from storage.session import Store

JSON = {"Content-Type": "application/json"}
BASE = "http://127.0.0.1:8080"


@pytest.fixture
def store(sqlite: Store) -> Store:
    """A store that most of these tests do not read."""
    return sqlite


@pytest.fixture
def key(store: Store) -> str:
    """A key with every scope."""
    return new_key(store, "me", get_args(Scope))


@pytest.mark.parametrize("keys", [False, True])
def test_every_route_that_writes_refuses_another_site_s_requests(
    store: Store, key: str, tmp_path: Path, keys: bool
) -> None:
    app = create_app(store, tmp_path, ask_for_keys=keys)
    api, headers = TestClient(app, BASE), {"Authorization": f"Bearer {key}"}
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.methods - {"GET", "HEAD"}]
    assert len(routes) >= 4
    for route in routes:
        path, [method] = route.path.format_map(dict.fromkeys(route.param_convertors, "1")), route.methods
        for origin in ("http://evil.example", "null", "http://[", "http://127.0.0.1:8081", f"{BASE}.evil.example"):
            refused = api.request(method, path, headers={**headers, **JSON, "Origin": origin}, content="{}")
            assert (refused.status_code, refused.json()["detail"][:7]) == (403, "Origin:"), path
        if method == "DELETE":  # a form cannot send this method, and it has no body
            continue
        form = {"Content-Type": "text/plain;application/json"}
        assert api.request(method, path, headers={**headers, **form}, content="{}").status_code == 415
        assert api.request(method, path, headers=headers).status_code == 415


@pytest.mark.parametrize("origin", [{}, {"Origin": BASE}])
def test_the_api_s_own_pages_and_programs_may_write(store: Store, tmp_path: Path, origin: dict[str, str]) -> None:
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), BASE)
    response = api.post(f"{PREFIX}/runs/demo/resume", headers={**JSON, **origin}, content="{}")
    assert (response.status_code, response.json()["detail"][:22]) == (404, "run demo: no such run;")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("127.0.0.1:9999", 200),  # a port that is forwarded to the API
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("[::1]:8080", 200),
        ("evil.example", 421),
        ("evil.example:8080", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.0.0.1@evil.example", 421),
        ("localhost.evil.example:8080", 421),
        ("192.168.1.5:8080", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_without_keys_only_requests_to_this_machine_are_answered(
    store: Store, key: str, tmp_path: Path, host: str, status: int
) -> None:
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), BASE)
    for path in (f"{PREFIX}/runs", "/api/openapi.json", "/healthz"):
        response = api.get(path, headers={"Host": host})
        assert response.status_code == status
        assert status == 200 or response.headers["content-type"] == "application/problem+json"
    with_keys = TestClient(create_app(store, tmp_path, ask_for_keys=True), BASE)
    assert with_keys.get(f"{PREFIX}/runs", headers={"Host": host, "Authorization": f"Bearer {key}"}).status_code == 200


PAGES = ("/", "/runs/demo", "/runs/demo/1/2", "/compare", "/alerts")
FILES = f"{PREFIX}/runs/demo/export"
DATA = (f"{PREFIX}/runs", FILES, "/metrics", "/healthz", "/api/openapi.json")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])  # same-site is another port of this host
@pytest.mark.parametrize("mode", ["no-cors", "cors", "navigate"])
def test_without_keys_requests_of_other_sites_pages_are_refused(
    store: Store, tmp_path: Path, site: str, mode: str
) -> None:
    """A picture or a script with an address of the API, a fetch or a link cannot read the response, but the API would
    work for it, and would for instance make an export."""
    fill(store)
    api = TestClient(create_app(store, tmp_path / "exports", ask_for_keys=False), BASE)
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    for path in (*DATA, "/static/app.js") if mode != "navigate" else DATA:
        refused = api.get(path, headers=headers)
        assert (refused.status_code, refused.json()["detail"][:15]) == (403, "Sec-Fetch-Site:"), path
    assert not (tmp_path / "exports").exists()


def test_without_keys_a_link_to_a_page_works_and_so_does_the_page(store: Store, tmp_path: Path) -> None:
    fill(store)
    api = TestClient(create_app(store, tmp_path / "exports", ask_for_keys=False), BASE)
    for path in PAGES:
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert api.get(path, headers=headers).status_code == 200
    for path in (*DATA, "/static/app.js"):
        assert api.get(path, headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status_code == 200
        assert api.get(path, headers={"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}).status_code == 200
        assert api.get(path).status_code == 200  # a program sends no such headers


def test_with_keys_a_cross_site_request_needs_only_a_key(store: Store, key: str, tmp_path: Path) -> None:
    """Another site's page has no key, and a proxy in front of the API may have another name."""
    api = TestClient(create_app(store, tmp_path, ask_for_keys=True), BASE)
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    assert api.get(f"{PREFIX}/runs", headers=headers).status_code == 401
    assert api.get(f"{PREFIX}/runs", headers={**headers, "Authorization": f"Bearer {key}"}).status_code == 200
