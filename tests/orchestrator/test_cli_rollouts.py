"""`coevo show rollouts`: what a training rewarded, in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.api.app import create_app
from services.api.installation import Installation
from storage import queries
from storage.files.texts import RolloutText, TextWriter, training_texts_paths
from storage.queries.training_rollouts import Training
from storage.session import Store
from tests.api_server import served
from tests.commands import coevo, refusal
from tests.storage.store_examples import training_rollout
from tests.synthetic_run import create

RUN, ODD = "rewarded", "\x9b2J\u202e"  # a control sequence for a terminal, and a character that reverses text
BEST = training_rollout(
    prompt=4,
    question=f"What is 2 + 3?{ODD}",
    answer=None,
    label=None,
    agrees=None,
    reward=0.75,
    parts={"uncertainty": 1.23456, "repetition": 0.25},
    advantage=1.5,
    tokens=31,
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


def rollouts(url: str, *options: str, columns: str | None = "200", role: str = "challenger") -> str:
    return coevo("show", "rollouts", RUN, 1, "--role", role, "--url", url, *options, COLUMNS=columns).stdout


def test_the_best_rollouts_are_printed_first_and_as_json(address: str) -> None:
    printed = rollouts(address, "--json")
    assert printed.isascii()
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [(row["step"], row["reward"]) for row in rows] == [(1, 0.75), (2, 0.0)]
    assert rows[0]["parts"] == BEST.parts
    worst = rollouts(address, "--sort", "reward", "--limit", "1", "--json")
    assert json.loads(worst)["step"] == 2
    assert rollouts(address, "--step", "3", "--json") == ""
    assert rollouts(address, "--json", role="solver") == ""
    refused = refusal("show", "rollouts", RUN, 1, "--url", address, "--sort", "best")
    assert "HTTP 422: query.sort" in refused


def test_the_table_has_the_parts_of_the_reward_and_no_control_characters(address: str) -> None:
    printed = rollouts(address)
    assert all(column in printed for column in ("reward", "uncertainty", "repetition", "malformed", "advantage"))
    assert "What is 2 + 3?" in printed
    assert not {"\x9b", "\u202e"} & set(printed)


def test_no_figure_is_cut_in_a_pipe_or_on_a_narrow_terminal(address: str) -> None:
    for columns in (None, "80"):
        printed = rollouts(address, columns=columns)
        [best] = [line.split() for line in printed.splitlines() if line.split()[:3] == ["1", "4", "0"]]
        assert best[3:11] == ["0.75", "1.235", "0.25", "1.5", "31", "0.5", "stop", "What"]
        assert {"uncertainty", "advantage", "entropy"} <= set(printed.split())


def test_json_has_all_rollouts_and_a_table_says_that_it_has_the_first(sqlite: Store, address: str) -> None:
    more = [replace(BEST, prompt=10 + number) for number in range(20)]
    with sqlite.write() as session:
        queries.training_rollouts.add(session, Training(RUN, 1, "challenger"), more)
    assert len(rollouts(address, "--json").splitlines()) == 22
    assert len(rollouts(address, "--json", "--limit", "3").splitlines()) == 3
    note = "The first 20 are shown; --limit 0 shows all."
    assert note in rollouts(address)
    assert "The first" not in rollouts(address, "--limit", "0")
    assert "The first" not in rollouts(address, "--limit", "22")


def test_text_shows_what_the_model_wrote_where_it_is_kept(address: str, tmp_path: Path) -> None:
    printed = rollouts(address, "--text")
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    assert lines[-4:-2] == ["step 1, prompt 4, rollout 0", "A question [red]:cat: 2J"]
    assert lines[-2:] == ["step 2, prompt 4, rollout 0", "the run does not keep this text"]
    assert not {"\x9b", "\u202e"} & set(printed)
    rows = rollouts(address, "--text", "--json").splitlines()
    assert [json.loads(row)["text"] for row in rows] == [WRITTEN, None]
    assert "text" not in json.loads(rollouts(address, "--json").splitlines()[0])
