"""The tags and notes in `coevo runs list`, and `coevo run --tag`."""

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


def test_tags_and_notes_are_listed(sqlite: Store, url: str) -> None:
    with sqlite.write() as session:
        tags, note = ["a", "paper:srt"], "line 1\n[red]line 2"
        queries.run_notes.annotate(session, "first", add=tags, note=note, by="ann")
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


def test_a_wrong_tag_is_refused_before_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    output = invoke("run", "demo", "--tag", "Not a tag", code=1)
    assert "tag: expected at most 40 small letters" in " ".join(output.split())
