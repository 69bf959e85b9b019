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

from services.client import ApiError, Client
from storage.session import Store

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


def test_a_program_with_httpx_alone_reads_lists_and_exports(python: Path, address: str, tmp_path: Path) -> None:
    target = tmp_path / "votes.jsonl"
    command = [python, "-I", "-c", PROGRAM, address, target]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifest = Client(address).get(f"/runs/{RUN}/export/manifest", what="votes", iterations="1", verdict=["kept"])
    result = json.loads(done.stdout)
    assert result["heavy"] == []
    assert result["manifest"] == manifest
    assert len(target.read_text().splitlines()) == manifest["rows"] == 8
    assert [question["index"] for question in result["questions"]] == [*range(len(QUESTIONS))]
    assert "HTTP 404: run nobody" in result["refused"]


@pytest.fixture(scope="module")
def stored(stored: Store) -> Store:
    fill(stored)
    return stored


@pytest.mark.parametrize(
    ("how", "path", "words"),
    [
        ("items", "/rusn", ["{url}/api/v1/rusn", "HTTP 404"]),
        ("items", "runs", ["path: ", "got 'runs'"]),
        ("items", "/api/v1/runs", ["path: ", "without /api/v1"]),
        ("items", "/pool", ["{url}/api/v1/pool", "use get"]),
        ("items", "/runs/demo/agreement", ["{url}/api/v1/runs/demo/agreement", "got an object"]),
        ("get", "/runs/demo/export", ["/runs/demo/export", "use export"]),
    ],
)
def test_a_wrong_path_is_refused_with_the_address_that_was_asked(
    address: str, how: str, path: str, words: list[str]
) -> None:
    with pytest.raises(ApiError) as refused:
        list(getattr(Client(address), how)(path))
    assert [word for word in words if word.format(url=address) not in str(refused.value)] == []


@pytest.mark.parametrize("path", ["/runs/demo/iterations/1/questions?verdict=kept", "/runs/demo#kept"])
def test_parameters_in_a_path_are_refused_and_not_dropped(tmp_path: Path, path: str) -> None:
    api = Client("http://127.0.0.1:1")  # is not asked
    for ask in (api.get, lambda path: list(api.items(path)), lambda path: api.export(path, tmp_path / "votes.jsonl")):
        with pytest.raises(ApiError, match=r"^path: .*keywords$"):
            ask(path)
