"""Which checkpoints keep their files: always those from which a run can go on, and with which it can end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from core.settings.config import CoEvolution, Retention, RunConfig
from core.settings.parsing import parse_config
from core.types import Evaluated
from orchestrator.cli import app
from orchestrator.disk import retention
from orchestrator.disk.garbage import garbage
from orchestrator.disk.retention import remove_unkept
from orchestrator.evaluation import request
from orchestrator.evaluation.answering import Ask
from orchestrator.evaluation.models import Model
from orchestrator.evaluation.request import RequestError
from orchestrator.installation.home import Home
from orchestrator.ledger import LEASE_S
from orchestrator.stages.chain import Chain
from services.evaluations.figures import named_checkpoint, servable_checkpoint
from storage import queries
from storage.errors import NotThere, RunHeld
from storage.session import Store, open_store
from tests.disk_files import publish_checkpoint
from tests.synthetic_run import add_evaluations, finish

BEST_AND_LAST = Retention(keep="best_and_last")
CONFIG = CoEvolution()


def add_iteration(
    store: Store, home: Home, t: int, right: int, result: dict[str, Any] | None = None, config: RunConfig = CONFIG
) -> None:
    """Iteration t of the run "r", of whose ten questions so many are right; `result` is that of `check_health`."""
    if t == 0:
        with store.write() as session:
            queries.runs.create_run(session, name="r", config=config)
        publish_checkpoint(home, store, "r", "base", 0)
    else:
        for role in (*config.roles, *(["labelled"] if config.has_branch else [])):
            publish_checkpoint(home, store, "r", role, t)
    checkpoint = f"r/{'solver' if t else 'base'}/{t}"
    items = [Evaluated(f"i{i}", None, 8, 8 * (i < right), False, False) for i in range(10)]
    with store.write() as session:
        add_evaluations(session, checkpoint=checkpoint, benchmark="micro", items=items)
        if t:
            finish(session, "r", t, "check_health", {"action": "ignore", "back_to": None, **(result or {})}, 1)


def add_iterations(store: Store, home: Home, *rights: int, config: RunConfig = CONFIG) -> None:
    for t, right in enumerate(rights):
        add_iteration(store, home, t, right, config=config)


def back_to(solver: str, challenger: str, action: str = "roll_back") -> dict[str, Any]:
    return {"action": action, "back_to": {"solver": f"r/{solver}", "challenger": f"r/{challenger}"}}


def begin_evaluation(session: Session) -> str:
    names = {"model": "r/solver/1", "checkpoint": "r/solver/1", "benchmark": "other"}
    return queries.evaluations.begin_evaluation(session, run=None, manifest={}, **names).id


def folders(home: Home) -> set[str]:
    return {path.relative_to(home.checkpoints / "r").as_posix() for path in (home.checkpoints / "r").glob("*/*")}


def thinned(store: Store, home: Home) -> set[str]:
    """The folders that stay when only the best and the last iteration are kept."""
    remove_unkept(home, store, "r", BEST_AND_LAST)
    return folders(home)


def of(*iterations: int, roles: tuple[str, ...] = ("challenger", "solver")) -> set[str]:
    return {"base/0", *(f"{role}/{t}" for t in iterations for role in roles)}


@pytest.mark.parametrize(("keep", "kept"), [("all", (1, 2, 3, 4, 5)), ("best_and_last", (2, 5)), (4, (2, 4, 5))])
def test_the_best_and_the_last_stay_and_every_kth(
    sqlite: Store, home: Home, keep: str | int, kept: tuple[int, ...]
) -> None:
    add_iterations(sqlite, home, 1, 3, 8, 5, 5, 6)
    removals = remove_unkept(home, sqlite, "r", Retention.model_validate({"keep": keep}))
    assert folders(home) == of(*kept)
    gone = {f"r/{name}" for name in of(*range(1, 6)) - of(*kept)}
    assert {removal.checkpoint for removal in removals} == gone
    assert all(removal.bytes > 0 for removal in removals)
    with sqlite.read() as session:
        rows = queries.checkpoints.checkpoints_of(session, "r")
    assert len(rows) == 11
    assert {row.id for row in rows if row.files_removed} == gone
    assert remove_unkept(home, sqlite, "r", BEST_AND_LAST if keep == "best_and_last" else Retention(keep="all")) == []


@pytest.mark.parametrize(
    ("settings", "rights", "kept"),
    [
        (
            {"labelled": {"file": "micro", "limit": 9, "chained": False}},
            (1, 8, 2, 3),
            of(1, 3, roles=("challenger", "solver", "labelled")),
        ),
        (
            {"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}},
            (5, 3, 8, 2, 1),
            of(2, 4, roles=("solver",)),
        ),
    ],
    ids=["a branch", "rounds on given prompts"],
)
def test_every_role_of_a_run_stays_with_its_iteration(
    sqlite: Store, home: Home, settings: dict[str, Any], rights: tuple[int, ...], kept: set[str]
) -> None:
    add_iterations(sqlite, home, *rights, config=parse_config(settings, "test"))
    assert thinned(sqlite, home) == kept


def test_after_a_roll_back_what_the_run_continues_from_stays(sqlite: Store, home: Home) -> None:
    """Iteration 3 is the best of all but was discarded, and iteration 2 is where the run went back to."""
    for t, right in enumerate((1, 3, 6, 9)):
        add_iteration(sqlite, home, t, right, back_to("solver/2", "challenger/2") if t == 3 else None)
    assert thinned(sqlite, home) == of(2, 3)  # a person may yet stop the run with iteration 3
    add_iteration(sqlite, home, 4, 4)
    assert thinned(sqlite, home) == of(2, 3, 4)


def test_an_iteration_that_waits_for_a_person_can_still_be_rolled_back(sqlite: Store, home: Home) -> None:
    """Iteration 3 is the best of all, but a person may decide to go back to iteration 1."""
    for t, right in enumerate((1, 4, 3, 9)):
        add_iteration(sqlite, home, t, right, {"action": "pause"} if t == 3 else None)
    assert thinned(sqlite, home) == of(1, 2, 3)
    with sqlite.write() as session:
        finish(session, "r", 3, "ask_a_person", {"action": "warn", "back_to": None}, 1)
    assert thinned(sqlite, home) == of(3)


def test_the_best_by_early_stopping_stays_and_the_best_by_the_evaluation(sqlite: Store, home: Home) -> None:
    stopping = parse_config({"early_stopping": {"benchmark": "other", "patience": 9}}, "test")
    for t, (right, right_of_other) in enumerate(((1, 1), (9, 2), (3, 8), (2, 4), (1, 1), (1, 1))):
        add_iteration(sqlite, home, t, right, config=stopping)
        items = [Evaluated(f"i{i}", None, 8, 8 * (i < right_of_other), False, False) for i in range(10)]
        with sqlite.write() as session:
            add_evaluations(session, checkpoint=f"r/{'solver' if t else 'base'}/{t}", benchmark="other", items=items)
    with sqlite.write() as session:
        finish(session, "r", 2, "ask_a_person", back_to("base/0", "base/0"), 1)  # so it is not to be gone back to
    assert thinned(sqlite, home) == of(1, 2, 3, 5)


def test_an_iteration_at_work_keeps_what_it_started_from_and_what_it_has_made(sqlite: Store, home: Home) -> None:
    add_iterations(sqlite, home, 1, 6, 3, 2)
    publish_checkpoint(home, sqlite, "r", "challenger", 4)
    assert thinned(sqlite, home) == {*of(1, 3), "challenger/4"}


def test_what_an_unfinished_evaluation_asks_stays(sqlite: Store, home: Home) -> None:
    add_iterations(sqlite, home, 1, 3, 4, 5)
    with sqlite.write() as session:
        key = begin_evaluation(session)
    assert thinned(sqlite, home) == {*of(3), "solver/1"}
    with sqlite.write() as session:
        queries.evaluations.finish_evaluation(session, key)
    assert thinned(sqlite, home) == of(3)


def test_an_evaluation_that_begins_while_files_are_about_to_be_removed_keeps_its_own(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_iterations(store, home, 1, 3, 4, 5)
    removable = retention.removable

    def begun_after(*arguments: Any) -> list[retention.Removal]:
        removals = removable(*arguments)
        with store.write() as session:
            begin_evaluation(session)
        return removals

    monkeypatch.setattr(retention, "removable", begun_after)
    removals = remove_unkept(home, store, "r", BEST_AND_LAST)
    assert folders(home) == {*of(3), "solver/1"}
    assert "r/solver/1" not in {removal.checkpoint for removal in removals}


@pytest.mark.parametrize("removed_before", [False, True])
def test_an_evaluation_that_waits_for_the_applications_keeps_the_files_of_its_checkpoint(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch, removed_before: bool
) -> None:
    add_iterations(store, home, 1, 3, 4, 5)

    class HasItsTurn(Exception):
        pass

    @contextmanager
    def serve(_waiting: Callable[[str], None]) -> Iterator[Ask]:
        remove_unkept(home, store, "r", BEST_AND_LAST)
        raise HasItsTurn
        yield  # so that this is a generator

    def found_model(*_: Any) -> Model:
        if removed_before:
            remove_unkept(home, store, "r", BEST_AND_LAST)
        return Model("r/solver/1", {"checkpoint": "r/solver/1"}, {"name": "e"}, serve, "r/solver/1")

    monkeypatch.setattr(request, "find_model", found_model)
    asked = request.EvaluationRequest(model="r:1", benchmarks=("micro",), limit=1)
    with pytest.raises(RequestError if removed_before else HasItsTurn):
        request.evaluate(home, store, asked, lambda *_: None)
    assert folders(home) == (of(3) if removed_before else {*of(3), "solver/1"})


STEPS = st.lists(st.tuples(st.integers(0, 10), st.sampled_from(["ignore", "roll_back"])), min_size=1, max_size=7)


@settings(max_examples=12, deadline=None)
@given(steps=STEPS, keep=st.sampled_from(["best_and_last", 2, 3]))
def test_no_run_ever_misses_a_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]], keep: str | int
) -> None:
    """A run that removes after every iteration finds all that it can continue from, go back to or end with."""
    home = Home(tmp_path_factory.mktemp("home"))
    store = open_store(home.database, create=True)
    add_iteration(store, home, 0, 5)
    for t, (right, action) in enumerate(steps, 1):
        result: dict[str, Any] = {}
        add_iteration(store, home, t, right)
        with store.read() as session:
            chain = Chain(session, "r", CONFIG, t)
            ends = chain.checkpoints_at(chain.best())
            returns = chain.checkpoints_at(chain.best_to_go_back_to())
        assert {*ends.values(), *returns.values()} <= {f"r/{name}" for name in folders(home)}
        if action == "roll_back":
            result = {"action": "roll_back", "back_to": returns}
            with store.write() as session:
                finish(session, "r", t, "ask_a_person", result, 1)
        remove_unkept(home, store, "r", Retention.model_validate({"keep": keep}))
        with store.read() as session:
            next_chain = Chain(session, "r", CONFIG, t + 1)
            starts = {next_chain.checkpoint(role).id for role in CONFIG.roles}
            named = servable_checkpoint(session, "r", "best")[0].id
        assert {*starts, named} <= {f"r/{name}" for name in folders(home)}
    store.close()


def test_a_removed_checkpoint_is_named_but_not_served(sqlite: Store, home: Home) -> None:
    add_iterations(sqlite, home, 1, 3, 4, 5)
    remove_unkept(home, sqlite, "r", BEST_AND_LAST)
    with sqlite.read() as session:
        assert named_checkpoint(session, "r", "1")[0].id == "r/solver/1"
        with pytest.raises(NotThere, match=r"r:9"):
            named_checkpoint(session, "r", "9")
        with pytest.raises(NotThere, match=r"r/solver/1 .* r:base, r:3$"):
            servable_checkpoint(session, "r", "1")


def test_after_a_crash_before_the_files_are_removed_gc_removes_them(
    sqlite: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_iterations(sqlite, home, 1, 3, 4, 5)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(retention, "discard", killed)
    with pytest.raises(KeyboardInterrupt):
        remove_unkept(home, sqlite, "r", BEST_AND_LAST)
    left = {item.path.relative_to(home.checkpoints / "r").as_posix() for item in garbage(home, sqlite, timedelta(0))}
    assert left == of(1, 2, 3) - of(3)


def test_the_command_shows_asks_and_removes_but_not_while_a_process_works_on_the_run(sqlite: Store, home: Home) -> None:
    add_iterations(sqlite, home, 1, 3, 4, 5)

    def thin(*options: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["runs", "thin", "r", *options])
        assert result.exit_code == code, result.output
        return result.output

    with sqlite.write() as session:
        queries.run_leases.claim_run(session, run="r", owner="elsewhere:42:7", lease_seconds=LEASE_S)
    with pytest.raises(RunHeld):
        remove_unkept(home, sqlite, "r", BEST_AND_LAST)
    with sqlite.write() as session:
        queries.run_leases.release_run(session, run="r", owner="elsewhere:42:7")
    assert "4 checkpoints to remove" in thin("--dry-run")
    assert "expected --yes" in thin(code=1)
    for keep in ("best", "0"):
        assert f"got '{keep}'" in thin(f"--keep={keep}", code=1)
    assert folders(home) == of(1, 2, 3)
    removed = json.loads(thin("--keep=2", "--yes", "--json"))
    assert [item["checkpoint"] for item in removed] == ["r/challenger/1", "r/solver/1"]
    assert folders(home) == of(2, 3)
    assert "nothing to remove" in thin("--keep=2", "--yes")
