"""`coevo runs tag` and `note`, and `coevo run --tag`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.settings.config import CoEvolution
from orchestrator.cli import app
from services.api.app import create_app
from storage import queries
from storage.session import Store
from tests.api_server import served


@pytest.fixture
def url(sqlite: Store, tmp_path: Path) -> Iterator[str]:
    """The address of an API with the runs `first` and `second`."""
    with sqlite.write() as session:
        for name in ("first", "second"):
            queries.runs.create_run(session, name=name, config=CoEvolution())
    with served(create_app(sqlite, tmp_path, ask_for_keys=False)) as address:
        yield address


def invoke(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result.output


def test_tags_and_notes_are_changed_and_listed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert invoke("runs", "tag", "first", "+a", "+b", "--url", url) == "run first: a, b\n"
    assert invoke("runs", "tag", "first", "-b", "+paper:srt", "--url", url) == "run first: a, paper:srt\n"
    assert invoke("runs", "note", "first", "line 1\n[red]line 2", "--url", url) == "run first: note saved\n"
    listed: list[dict[str, Any]] = [
        json.loads(line) for line in invoke("runs", "list", "--json", "--url", url).splitlines()
    ]
    noted = {run["name"]: (run["tags"], run["note"], run["noted_by"]) for run in listed}
    assert noted == {"first": (["a", "paper:srt"], "line 1\n[red]line 2", "ann"), "second": ([], "", None)}
    table = invoke("runs", "list", "--url", url)
    assert "a, paper:srt" in table
    assert "line 1" in table
    [only] = invoke("runs", "list", "--json", "--tag", "a", "--url", url).splitlines()
    assert json.loads(only)["name"] == "first"
    assert invoke("runs", "tag", "first", "-a", "-paper:srt", "--url", url) == "run first: no tags\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tag", "first", "a"), "tag: expected +TAG or -TAG, got 'a'"),
        (("tag", "first", "+Not a tag"), "body.add.0"),
        (("note", "nobody", "text"), "run nobody: no such run"),
    ],
)
def test_what_cannot_be_done_is_refused(url: str, arguments: tuple[str, ...], words: str) -> None:
    assert words in " ".join(invoke("runs", *arguments, "--url", url, code=1).split())


def test_a_wrong_tag_is_refused_before_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    output = invoke("run", "demo", "--tag", "Not a tag", code=1)
    assert "tag: expected at most 40 small letters" in " ".join(output.split())
