"""`coevo rollouts`: what a training rewarded, in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from core.types import TrainingRollout
from orchestrator.cli import app
from services.api.app import create_app
from storage import queries
from storage.queries.training_rollouts import Training
from storage.session import Store
from tests.api_server import served
from tests.synthetic_run import create

RUN, ODD = "rewarded", "\x9b2J\u202e"  # a control sequence for a terminal, and a character that reverses text
BEST = TrainingRollout(
    step=1,
    prompt=4,
    rollout=0,
    question_id=None,
    question=f"What is 2 + 3?{ODD}",
    answer=None,
    label=None,
    agrees=None,
    reward=0.75,
    parts={"uncertainty": 1.0, "repetition": 0.25},
    advantage=1.5,
    tokens=31,
    finish_reason="stop",
    mean_entropy=0.5,
)
WORST = replace(BEST, step=2, question=None, reward=0.0, parts={"malformed": 1.0}, advantage=None)


@pytest.fixture
def address(sqlite: Store, tmp_path: Path) -> Iterator[str]:
    with sqlite.write() as session:
        create(session, RUN)
        queries.training_rollouts.add(session, Training(RUN, 1, "challenger"), [WORST, BEST])
    with served(create_app(sqlite, tmp_path, ask_for_keys=False)) as url:
        yield url


def rollouts(url: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["rollouts", RUN, "1", "--url", url, *options], env={"COLUMNS": "200"})


def test_the_best_rollouts_are_printed_first_and_as_json(address: str) -> None:
    printed = rollouts(address, "--role", "challenger", "--json").stdout
    assert printed.isascii()
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [(row["step"], row["reward"]) for row in rows] == [(1, 0.75), (2, 0.0)]
    assert rows[0]["parts"] == BEST.parts
    worst = rollouts(address, "--role", "challenger", "--sort", "reward", "--limit", "1", "--json").stdout
    assert json.loads(worst)["step"] == 2
    assert rollouts(address, "--role", "challenger", "--step", "3", "--json").stdout == ""
    assert rollouts(address, "--json").stdout == ""  # the Solver's training


def test_the_table_has_the_parts_of_the_reward_and_no_control_characters(address: str) -> None:
    printed = rollouts(address, "--role", "challenger").stdout
    assert all(column in printed for column in ("reward", "uncertainty", "repetition", "malformed", "advantage"))
    assert "What is 2 + 3?" in printed
    assert not {"\x9b", "\u202e"} & set(printed)


def test_an_order_that_does_not_exist_is_named(address: str) -> None:
    refused = rollouts(address, "--sort", "best")
    assert (refused.exit_code, "HTTP 422: query.sort" in refused.stderr) == (1, True)
