"""The package `coevo-client`: built, installed with httpx alone, and used against a served API."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from api_examples import QUESTIONS, RUN, fill

from services.api.app import create_app
from services.client import ApiError, Client
from storage.session import Store
from tests.api_server import served

SOURCE = Path(__file__).parents[2] / "services" / "client"
PROGRAM = """
import json, sys
from pathlib import Path
from coevo_client import ApiError, Client

api, target = Client(sys.argv[1]), Path(sys.argv[2])
manifest = api.export("/runs/demo/export", target, what="votes", iterations="1", verdict=["kept"])
try:
    api.get("/runs/nobody")
except ApiError as error:
    refused = str(error)
questions = list(api.items("/runs/demo/iterations/1/questions", limit=2))
heavy = {"torch", "ray", "numpy", "pydantic", "sqlalchemy", "core", "services"} & sys.modules.keys()
print(json.dumps({"manifest": manifest, "refused": refused, "questions": questions, "heavy": sorted(heavy)}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the package's wheel, and copies of httpx and of what httpx needs."""
    source, wheels, environment = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "environment"))
    shutil.copytree(SOURCE, source / "client", ignore=shutil.ignore_patterns("__pycache__"))
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={wheels}"]
    subprocess.run([sys.executable, "-m", "pip", *build, str(source / "client")], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    [wheel] = wheels.glob("coevo_client-*.whl")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", f"--python={python}", *install], check=True)
    [libraries] = environment.glob("lib/python*/site-packages")
    for package in _needed_by("httpx"):
        for file in package.files or ():
            if not {"..", "__pycache__"} & set(file.parts):
                (libraries / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), libraries / file)
    return python


def _needed_by(name: str) -> Iterator[Distribution]:
    """A package and what it needs, without extras. What is not installed is not needed by this version of Python."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return
    yield package
    for requirement in package.requires or ():
        if "extra ==" not in requirement:
            yield from _needed_by(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


def test_a_program_with_httpx_alone_reads_lists_and_exports(python: Path, sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite)
    target = tmp_path / "votes.jsonl"
    with served(create_app(sqlite, tmp_path / "exports", ask_for_keys=False)) as url:
        command = [python, "-I", "-c", PROGRAM, url, target]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        manifest = Client(url).get(f"/runs/{RUN}/export/manifest", what="votes", iterations="1", verdict=["kept"])
    result = json.loads(done.stdout)
    assert result["heavy"] == []
    assert result["manifest"] == manifest
    assert len(target.read_text().splitlines()) == manifest["rows"] == 8
    assert [question["index"] for question in result["questions"]] == [*range(len(QUESTIONS))]
    assert "HTTP 404: run nobody: no such run" in result["refused"]


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("/rusn", "{url}/api/v1/rusn: HTTP 404: Not Found"),
        ("runs", "path: expected a route without /api/v1, such as /runs, got 'runs'"),
        ("/api/v1/runs", "path: expected a route without /api/v1, such as /runs, got '/api/v1/runs'"),
        ("/pool", "{url}/api/v1/pool: expected a list in pages, got a whole list; use get"),
        ("/runs/demo/agreement", "{url}/api/v1/runs/demo/agreement: expected a list in pages, got an object with "),
    ],
)
def test_a_wrong_path_is_refused_with_the_address_that_was_asked(
    sqlite: Store, tmp_path: Path, path: str, complaint: str
) -> None:
    fill(sqlite)
    with served(create_app(sqlite, tmp_path, ask_for_keys=False)) as url, pytest.raises(ApiError) as refused:
        list(Client(url).items(path))
    assert str(refused.value).startswith(complaint.format(url=url))


@pytest.mark.parametrize("path", ["/runs/demo/iterations/1/questions?verdict=kept", "/runs/demo#kept"])
def test_parameters_in_a_path_are_refused_and_not_dropped(tmp_path: Path, path: str) -> None:
    api = Client("http://127.0.0.1:1")  # is not asked
    for ask in (api.get, lambda path: list(api.items(path)), lambda path: api.export(path, tmp_path / "votes.jsonl")):
        with pytest.raises(ApiError, match=r"^path: expected no \? or #, got .*; give parameters as keywords$"):
            ask(path)


def test_get_names_export_for_a_route_that_answers_with_a_file(sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite)
    refused = pytest.raises(ApiError, match="/export: this route answers with a file: use export")
    with served(create_app(sqlite, tmp_path, ask_for_keys=False)) as url, refused:
        Client(url).get("/runs/demo/export")
