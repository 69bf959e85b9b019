"""Runs whose rollouts the real applications sample, on real Ray and Serve: the same bits as the embedded sampler's."""

from __future__ import annotations

import signal

import pytest

from core.processes.faultpoints import FaultPoint
from tests.chaos.contents import Contents, contents_of, differences
from tests.live import Live

_SAME = ("checkpoints", "train_metrics", "training_rollouts", "trained_on", "questions", "rollouts")
SAMPLER = "trainer.sampler=application"
TWO = ("challenger.training.workers=2", "solver.training.workers=2")


def contents(live: Live, name: str) -> Contents:
    """What is stored of a run's models and what they were trained on, without the figures of swaps."""
    with live.store().read() as session:
        found = contents_of(session, live.home.texts, name)
    kept = {table: [row for row in rows if '"swap_' not in row] for table, rows in found.items()}
    assert {*_SAME} <= kept.keys()
    assert all(kept[table] for table in _SAME)
    return {table: kept[table] for table in _SAME}


@pytest.fixture(scope="module")
def embedded(live: Live) -> Contents:
    return _run(live, "embedded-sampler")


def _run(live: Live, name: str, *more: str) -> Contents:
    ended = live.coevo(*live.small_run(name, live.few_questions, *more))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return contents(live, name)


def test_the_applications_sample_what_the_trainer_would(live: Live, embedded: Contents) -> None:
    by_application = _run(live, "sampled-by-application", SAMPLER)
    assert differences(embedded, by_application) == []
    with live.store().read() as session:
        found = contents_of(session, live.home.texts, "sampled-by-application")
    for name in ("swap_seconds", "swap_bytes"):
        swaps = [row for row in found["train_metrics"] if f'"{name}"' in row]
        assert len(swaps) == (0 if name == "swap_seconds" else 6)  # times are left out; three steps of each role
    assert not any(live.home.memory.iterdir())


@pytest.mark.slow
def test_two_workers_share_the_asking(live: Live) -> None:
    expected = _run(live, "embedded-with-two", *TWO)
    assert differences(expected, _run(live, "sampled-for-two", SAMPLER, *TWO)) == []


KILLS: tuple[tuple[FaultPoint, str], ...] = (
    ("weights written", "1/train_challenger/1"),  # in the middle of a swap
    ("weights swapped", "1/train_challenger/2"),  # of a sampling
    ("step ended", "1/train_challenger/3"),  # of an update: its weights are lost
    ("weights swapped", "1/train_solver/1"),
    ("weights written", "1/train_solver/2"),
)
AHEAD_KILLS: tuple[tuple[FaultPoint, str], ...] = (
    ("weights written", "1/train_challenger/1"),
    ("weights swapped", "1/train_challenger/1"),  # with which the third step is sampled; it has no swap of its own
    ("step ended", "1/train_challenger/2"),
    ("weights swapped", "1/train_solver/1"),
    ("step ended", "1/train_solver/3"),
)


def _run_killed(live: Live, name: str, kills: tuple[tuple[FaultPoint, str], ...], *settings: str) -> Contents:
    # The trainer works in the run's own process, which kills itself.
    command = live.small_run(name, live.few_questions, SAMPLER, "trainer.own_processes=false", *settings)
    for point, unit in kills:
        process = live.start_killed_at(point, unit, *command)
        assert process.wait(600) == -signal.SIGKILL, (point, unit)
        command = ["resume", name]
    ended = live.coevo("resume", name)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not any(live.home.memory.iterdir())
    return contents(live, name)


def test_killed_in_a_swap_a_sampling_and_an_update_it_ends_with_the_same_rows(live: Live, embedded: Contents) -> None:
    assert differences(embedded, _run_killed(live, "sampled-and-killed", KILLS)) == []


@pytest.mark.slow
def test_killed_one_step_ahead_it_ends_with_the_same_rows(live: Live) -> None:
    whole = _run(live, "sampled-ahead", SAMPLER, "trainer.ahead=1")
    assert differences(whole, _run_killed(live, "ahead-and-killed", AHEAD_KILLS, "trainer.ahead=1")) == []
