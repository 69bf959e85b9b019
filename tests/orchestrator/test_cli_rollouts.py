"""`coevo show rollouts`: what a training rewarded, in a terminal."""

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
from services.api.installation import Installation
from storage import queries
from storage.files.texts import RolloutText, TextWriter, training_texts_paths
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
    parts={"uncertainty": 1.23456, "repetition": 0.25},
    advantage=1.5,
    tokens=31,
    finish_reason="stop",
    mean_entropy=0.5,
)
WRITTEN = f"A question [red]:cat:{ODD}"
WORST = replace(BEST, step=2, question=None, reward=0.0, parts={"malformed": 1.0}, advantage=None)


@pytest.fixture
def address(sqlite: Store, tmp_path: Path) -> Iterator[str]:
    with sqlite.write() as session:
        create(session, RUN)
        queries.training_rollouts.add(session, Training(RUN, 1, "challenger"), [WORST, BEST])
    [file] = training_texts_paths(tmp_path, RUN, 1, "challenger")
    writer = TextWriter(file)
    writer.add(0, [RolloutText(BEST.prompt_key, BEST.rollout, WRITTEN)])
    writer.finish()
    with served(create_app(sqlite, tmp_path, ask_for_keys=False, installation=Installation(texts=tmp_path))) as url:
        yield url


def rollouts(url: str, *options: str, columns: str | None = "200") -> Result:
    return CliRunner().invoke(app, ["show", "rollouts", RUN, "1", "--url", url, *options], env={"COLUMNS": columns})


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


def test_no_figure_is_cut_in_a_pipe_or_on_a_narrow_terminal(address: str) -> None:
    for columns in (None, "80"):
        printed = rollouts(address, "--role", "challenger", columns=columns).stdout
        [best] = [line.split() for line in printed.splitlines() if line.split()[:3] == ["1", "4", "0"]]
        assert best[3:11] == ["0.75", "1.235", "0.25", "1.5", "31", "0.5", "stop", "What"]
        assert {"uncertainty", "advantage", "entropy"} <= set(printed.split())


def test_json_has_all_rollouts_and_a_table_says_that_it_has_the_first(sqlite: Store, address: str) -> None:
    more = [replace(BEST, prompt=10 + number) for number in range(20)]
    with sqlite.write() as session:
        queries.training_rollouts.add(session, Training(RUN, 1, "challenger"), more)
    assert len(rollouts(address, "--role", "challenger", "--json").stdout.splitlines()) == 22
    assert len(rollouts(address, "--role", "challenger", "--json", "--limit", "3").stdout.splitlines()) == 3
    note = "The first 20 are shown; --limit 0 shows all."
    assert note in rollouts(address, "--role", "challenger").stdout
    assert "The first" not in rollouts(address, "--role", "challenger", "--limit", "0").stdout
    assert "The first" not in rollouts(address, "--role", "challenger", "--limit", "22").stdout


def test_text_shows_what_the_model_wrote_where_it_is_kept(address: str, tmp_path: Path) -> None:
    printed = rollouts(address, "--role", "challenger", "--text").stdout
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    assert lines[-4:-2] == ["step 1, prompt 4, rollout 0", "A question [red]:cat: 2J"]
    assert lines[-2:] == ["step 2, prompt 4, rollout 0", "the run does not keep this text"]
    assert not {"\x9b", "\u202e"} & set(printed)
    rows = rollouts(address, "--role", "challenger", "--text", "--json").stdout.splitlines()
    assert [json.loads(row)["text"] for row in rows] == [WRITTEN, None]
    assert "text" not in json.loads(rollouts(address, "--role", "challenger", "--json").stdout.splitlines()[0])


def test_an_order_that_does_not_exist_is_named(address: str) -> None:
    refused = rollouts(address, "--sort", "best")
    assert (refused.exit_code, "HTTP 422: query.sort" in refused.stderr) == (1, True)
