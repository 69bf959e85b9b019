"""`coevo show questions`: how many questions are printed, and their shares of votes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.settings.parsing import parse_config
from core.types import Question
from services.api.app import create_app
from storage import queries
from storage.session import Store
from tests.api_server import served
from tests.commands import coevo, refusal
from tests.synthetic_run import create, fill_run, label, vote_of


@pytest.fixture
def address(sqlite: Store, tmp_path: Path) -> Iterator[str]:
    fill_run(sqlite, "demo", per_level=2)
    with served(create_app(sqlite, tmp_path, ask_for_keys=False)) as url:
        yield url


def questions(url: str, *options: str, run: str = "demo", iteration: int = 1) -> str:
    return coevo("show", "questions", run, iteration, "--url", url, *options, COLUMNS="200").stdout


def test_json_has_all_questions_and_a_table_says_that_it_has_only_the_first(address: str) -> None:
    assert len(questions(address, "--json").splitlines()) == 320
    assert len(questions(address, "--json", "--limit", "5").splitlines()) == 5
    assert questions(address).rstrip().endswith("The first 20 are shown; --limit 0 shows all.")
    assert "The first" not in questions(address, "--limit", "320")


def test_prompts_are_listed_with_the_answers_that_they_came_with(address: str, sqlite: Store) -> None:
    assert "true answer" not in questions(address)
    with sqlite.write() as session:
        queries.questions.add_questions(session, [Question("demo/1/900", "demo", 1, 900, "q?", "q?", None, 1, "4711")])
    header, *rows = questions(address, "--limit", "0").strip().splitlines()
    assert "true answer (given)" in header
    assert [row for row in rows if "4711" in row and "q?" in row]


def test_a_self_training_run_s_later_iterations_name_the_one_with_the_prompts(sqlite: Store, address: str) -> None:
    config = parse_config({"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "srt"}}}, "test")
    with sqlite.write() as session:
        create(session, "given", config)
        label(session, "given", 0, [("What is 1 + 1?", vote_of(("2", 4)))], config)
    assert "What is 1 + 1?" in questions(address, run="given", iteration=0)
    complaint = "HTTP 404: run given, iteration 1: it has no questions; the run's prompts are in iteration 0"
    assert complaint in refusal("show", "questions", "given", "1", "--url", address)


def test_an_empty_list_says_whether_a_filter_makes_it_empty(sqlite: Store, address: str) -> None:
    with sqlite.write() as session:
        create(session, "begun")
    assert questions(address, run="begun") == "No questions yet.\n"
    assert questions(address, "--verdict", "kept", run="begun") == "No questions match these filters.\n"


def test_p_hat_is_votes_of_votes(address: str) -> None:
    """A decimal beside the number of votes would read as a share of a vote."""
    printed = questions(address, "--verdict", "kept", "--limit", "1")
    [cell] = [word for word in printed.split() if "/" in word]
    votes, voters = map(int, cell.split("/"))
    assert (3 <= votes <= 8, voters) == (True, 10)
