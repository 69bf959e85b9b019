"""`coevo questions`: how many questions are printed, and their shares of votes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from core.types import Question
from orchestrator.cli import app
from services.api.app import create_app
from storage import queries
from storage.session import Store
from tests.api_server import served
from tests.synthetic_run import fill_run


@pytest.fixture
def address(sqlite: Store, tmp_path: Path) -> Iterator[str]:
    fill_run(sqlite, "demo", per_level=2)
    with served(create_app(sqlite, tmp_path, ask_for_keys=False)) as url:
        yield url


def questions(url: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["questions", "demo", "1", "--url", url, *options], env={"COLUMNS": "200"})


def test_json_has_all_questions_unless_there_is_a_limit(address: str) -> None:
    assert len(questions(address, "--json").stdout.splitlines()) == 320
    assert len(questions(address, "--json", "--limit", "5").stdout.splitlines()) == 5


def test_a_table_says_that_it_has_only_the_first_questions(address: str) -> None:
    assert questions(address).stdout.rstrip().endswith("The first 20 are shown; --limit 0 shows all.")
    assert "The first" not in questions(address, "--limit", "320").stdout


def test_prompts_are_listed_with_the_answers_that_they_came_with(address: str, sqlite: Store) -> None:
    assert "true answer" not in questions(address).stdout
    with sqlite.write() as session:
        queries.questions.add_questions(session, [Question("demo/1/900", "demo", 1, 900, "q?", "q?", None, 1, "4711")])
    header, *rows = questions(address, "--limit", "0").stdout.strip().splitlines()
    assert "true answer (given)" in header
    assert [row for row in rows if "4711" in row and "q?" in row]


def test_p_hat_is_votes_of_votes(address: str) -> None:
    """A decimal beside the number of votes would read as a share of a vote."""
    printed = questions(address, "--verdict", "kept", "--limit", "1").stdout
    [cell] = [word for word in printed.split() if "/" in word]
    votes, voters = map(int, cell.split("/"))
    assert (3 <= votes <= 8, voters) == (True, 10)
