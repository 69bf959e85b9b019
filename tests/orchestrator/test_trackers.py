"""A tracker has what the store has, once, and whatever goes wrong with it, the run has the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from core.settings.trackers import Trackers
from orchestrator.installation.home import Home
from orchestrator.reporting import run_log
from orchestrator.stages.training.metrics import store_step
from orchestrator.trackers import tracked
from orchestrator.trackers.adapters import Send
from orchestrator.trackers.process import follow
from services.views.metrics import Metric, metrics_of
from storage.files.run_logs import last_events
from storage.session import Store, open_store
from tests.chaos.contents import contents_of
from tests.live import wait_until
from tests.synthetic_run import context_of
from tests.tracked_run import KEY, NAME, add, fake_wandb, repeat_steps, tracked_run


class Recorded:
    """A tracker in memory, which fails where the test says so."""

    def __init__(self) -> None:
        self.metrics, self.labels = list[Metric](), dict[str, str]()
        self.opened = self.closed = self.calls = 0
        self.failing: Callable[[int], bool] = lambda _call: False
        self.errors = list[Exception]()

    @contextmanager
    def open(self) -> Iterator[Send]:
        self.opened += 1
        self.metrics.clear()
        self.labels.clear()

        def send(metrics: Sequence[Metric], labels: Mapping[str, str]) -> None:
            self.calls += 1
            self.metrics += metrics[: len(metrics) // 2]
            if self.failing(self.calls):
                raise OSError("the server is away")
            self.metrics += metrics[len(metrics) // 2 :]
            self.labels |= labels

        yield send
        self.closed += 1

    def follow(self, store: Store, news: Iterator[set[int] | None]) -> None:
        follow(store, NAME, "http://pages", self.open, news, self.errors.append)

    def assert_has_all(self, store: Store) -> None:
        assert sorted(self.metrics, key=str) == sorted(metrics_of(store, NAME), key=str)


def test_a_tracker_has_all_of_the_store_once_also_what_was_repeated(sqlite: Store, home: Home) -> None:
    tracked_run(sqlite, home, Trackers())
    tracker = Recorded()

    def news() -> Iterator[set[int] | None]:
        yield None
        assert tracker.metrics == []
        add(sqlite, [1])
        yield {1}
        tracker.assert_has_all(sqlite)
        add(sqlite, [2, 3])
        yield {2, 3}
        tracker.assert_has_all(sqlite)
        assert tracker.opened == 1
        repeat_steps(sqlite, 3, {15: 0.5})  # it lacks the steps after it now
        yield {3}
        tracker.assert_has_all(sqlite)
        repeat_steps(sqlite, 3, {16: 0.25, 17: 0.125})
        yield {3}
        tracker.assert_has_all(sqlite)
        assert tracker.opened == 2
        yield None

    tracker.follow(sqlite, news())
    tracker.assert_has_all(sqlite)
    assert (tracker.closed, tracker.errors) == (tracker.opened, [])
    assert tracker.labels["dashboard"] == f"http://pages/runs/{NAME}"
    assert tracker.labels["checkpoint/solver/3"] == f"{NAME}/solver/3"  # the synthetic run's sha256


@pytest.mark.parametrize("failing", [lambda call: call == 2, lambda call: call < 3, lambda call: call % 2 == 0])
def test_after_an_error_a_tracker_gets_what_it_lacks(sqlite: Store, home: Home, failing: Callable[[int], bool]) -> None:
    tracked_run(sqlite, home, Trackers())
    tracker = Recorded()
    tracker.failing = failing

    def news() -> Iterator[set[int] | None]:
        yield None
        for t in (1, 2, 3):
            add(sqlite, [t])
            yield {t}
        yield None
        yield None

    tracker.follow(sqlite, news())
    tracker.assert_has_all(sqlite)
    assert {type(error) for error in tracker.errors} == {OSError}


def test_steps_go_on_over_the_iterations_and_a_value_that_is_no_number_is_none(sqlite: Store, home: Home) -> None:
    tracked_run(sqlite, home, Trackers())
    add(sqlite, [1, 2])
    repeat_steps(sqlite, 1, {19: float("nan"), 20: float("inf")})
    kl = {metric.x: metric for metric in metrics_of(sqlite, NAME) if metric.name == "training/solver/kl"}
    assert [*kl] == [*range(1, 41)]
    assert (kl[25].iteration, kl[25].step) == (2, 5)
    assert (kl[19].value, kl[20].value) == (None, None)


@pytest.mark.heavy
def test_a_tracker_is_told_of_a_step_as_soon_as_it_is_stored(
    sqlite: Store, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = fake_wandb(monkeypatch, tmp_path, "raises at each call")  # there is none before the first step
    with tracked.tracked(tracked_run(sqlite, home, Trackers(to=("wandb",)))):
        wait_until((home.trackers / NAME / "wandb").exists, "the tracker's start")
        assert not reached.exists()
        store_step(context_of(sqlite, NAME, 1), "solver", {"step": 1.0, "kl": 0.5})
        wait_until(reached.exists, "the first point")


CASES = [
    *(f"raises at {when}" for when in ("import", "start", "each call", "the end")),
    *(f"hangs at {when}" for when in ("start", "each call", "the end")),
    "crashes at each call",
    "exits at each call",
]


@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES)
def test_a_tracker_that_fails_changes_no_row_and_is_named_once_in_the_log(
    case: str, sqlite: Store, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = fake_wandb(monkeypatch, tmp_path, case)
    if case in ("hangs at start", "hangs at each call"):  # it hangs already when the run ends
        monkeypatch.setattr(tracked, "PATIENCE_S", 0.5)
    run = tracked_run(sqlite, home, Trackers(to=("wandb",)))
    with tracked.tracked(run), run_log.recorded(home, NAME, 1, "train_solver"):
        add(sqlite, [1])
        waited_for = home.trackers / NAME / "wandb" if case.endswith("the end") else reached
        wait_until(waited_for.exists, case)
        add(sqlite, [2, 3])
    assert reached.exists()
    assert rows_of(sqlite, home) == rows_without_trackers(home, tmp_path / "other.db")
    [event] = last_events(home.run_logs, NAME, 100)
    assert (event.level, KEY in event.message, "wandb" in event.message) == ("WARNING", False, True)
    assert (case.startswith("raises")) == ("RuntimeError" in event.message)


def rows_without_trackers(home: Home, file: Path) -> dict[str, list[str]]:
    with closing(open_store(f"sqlite:///{file}", create=True)) as store:
        tracked_run(store, home, Trackers())
        add(store, [1, 2, 3])
        return rows_of(store, home)


def rows_of(store: Store, home: Home) -> dict[str, list[str]]:
    """All rows but those with the settings."""
    with store.read() as session:
        contents = contents_of(session, home.texts, NAME)
    return {table: rows for table, rows in contents.items() if table != "runs"}
