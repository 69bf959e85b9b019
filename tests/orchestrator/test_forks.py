"""Forks: a run that begins after an iteration of another one goes on as that one did, and keeps what it needs."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from core.errors import CoevoError
from core.settings.config import Retention
from core.types import Flow
from orchestrator.check.start import RunError, startable
from orchestrator.disk import deletion
from orchestrator.disk.files import DiskError
from orchestrator.disk.garbage import collect
from orchestrator.disk.retention import remove_unkept
from orchestrator.installation.home import Home
from orchestrator.runs import check_start, ended_as, prepare, result_of, stored_config
from orchestrator.stages.chain import Chain
from storage import queries
from storage.models import Stages
from storage.session import Store, open_store
from tests.chaos.contents import Contents
from tests.orchestrator.fork_contents import contents, difference
from tests.orchestrator.stored_runs import RUN, copy_of, go_on, store_loop, store_rounds, violations
from tests.synthetic_run import run_of


@dataclasses.dataclass(frozen=True)
class Forked:
    """A home with a run of two iterations, and what its second one has added."""

    home: Home
    second: Contents


def _contents(store: Store, home: Home, run: str) -> Contents:
    return contents(store, home, run, RUN)


def _stored(folder: Path, store_run: Callable[..., None]) -> Forked:
    store, home = open_store(f"sqlite:///{folder / 'coevo.db'}", create=True), Home(folder)
    store_run(store, home, iterations=1)
    first = _contents(store, home, RUN)
    prepare(home, store, RUN, "", 2, {}, stored_config(store, RUN).kind)
    go_on(store, home)
    second = difference(_contents(store, home, RUN), first)
    store.close()
    return Forked(home, second)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    return _stored(tmp_path_factory.mktemp("loop"), store_loop)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    return _stored(tmp_path_factory.mktemp("rounds"), store_rounds)


@pytest.fixture(autouse=True)
def _its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)


@pytest.fixture
def copied(loop: Forked, tmp_path: Path) -> tuple[Home, Store]:
    return copy_of(loop.home, tmp_path)


def fork(home: Home, store: Store, at: str, name: str = "fork", flow: Flow = "co_evolve", **more: Any) -> None:
    """Create a run that begins at a place such as "whole:1"; `more` are settings, with `__` for the dots in names."""
    settings = {key.replace("__", "."): value for key, value in more.items()}
    prepare(home, store, name, "", settings.pop("iterations", 0), settings, flow, from_run=at)


def test_a_loop_without_changes_goes_on_as_the_other_run_did(loop: Forked, tmp_path: Path) -> None:
    home, store = copy_of(loop.home, tmp_path)
    fork(home, store, "whole:1")
    assert ended_as(store, "fork") is None
    go_on(store, home, "fork")
    assert _contents(store, home, "fork") == loop.second
    assert violations(home, store, "fork") == {}
    assert (ended_as(store, "fork"), result_of(store, "fork")) == ("done", "fork/solver/2")
    assert {path.name for path in (home.checkpoints / "fork" / "solver").iterdir()} == {"2"}
    assert not (home.checkpoints / "fork" / "base").exists()


def test_rounds_without_changes_go_on_as_those_of_the_other_run_did(rounds: Forked, tmp_path: Path) -> None:
    """The prompts, the number of steps before and the optimiser's moments are inherited."""
    home, store = copy_of(rounds.home, tmp_path)
    fork(home, store, "whole:1", flow="self_train")
    go_on(store, home, "fork")
    assert _contents(store, home, "fork") == rounds.second
    assert violations(home, store, "fork") == {}


def test_only_the_iterations_after_it_differ_with_another_seed(loop: Forked, copied: tuple[Home, Store]) -> None:
    home, store = copied
    fork(home, store, "whole:1", seed=11)
    go_on(store, home, "fork")
    second = _contents(store, home, "fork")
    assert second.keys() == loop.second.keys()
    assert second["questions"] != loop.second["questions"]
    assert violations(home, store, "fork") == violations(home, store) == {}


def test_a_fork_of_a_fork_needs_only_the_runs_that_made_its_iterations(copied: tuple[Home, Store]) -> None:
    home, store = copied
    fork(home, store, "whole:1", iterations=3)
    go_on(store, home, "fork")
    fork(home, store, "fork:1", "early")
    fork(home, store, "fork:2", "late")
    for name in ("early", "late"):
        go_on(store, home, name)
        assert violations(home, store, name) == {}
    with store.read() as session:
        assert queries.forks.inherited(session, "early") == {0: RUN, 1: RUN}
        assert queries.forks.inherited(session, "late") == {0: RUN, 1: RUN, 2: "fork"}
        assert [row.id for row in queries.checkpoints.lineage(session, "late/solver/3")] == [
            "late/solver/3",
            "fork/solver/2",
            "whole/solver/1",
            "whole/base/0",
        ]
    for kept, keeper in ((RUN, "early, fork, late"), ("fork", "late")):
        with pytest.raises(DiskError, match=f"{kept}: .* {keeper}; "):
            deletion.planned(home, store, kept, evaluations=True)
    for name in ("late", "early", "fork", RUN):
        assert deletion.delete(home, store, name, evaluations=True).elsewhere == []
    assert [*home.checkpoints.iterdir()] == []


REFUSED = [  # where it begins, its settings, and what the message names
    ("whole", {}, "from_run: .*RUN:T"),
    ("other:1", {}, "run other: no such run"),
    ("whole:3", {}, "from_run: .*whole:2.*, got whole:3"),
    ("whole:2", {}, "iterations: .*2.*, got 2"),
    ("whole:1", {"base_model": "micro-long"}, "base_model: .*'micro', got 'micro-long'"),
    ("whole:1", {"shared": True}, "shared: .*False, got True"),
    ("whole:1", {"kind": "self_train"}, "kind"),
    ("whole:1", {"dataset.candidates": "many"}, "dataset.candidates"),
]


@pytest.mark.parametrize(("at", "settings", "named"), REFUSED)
def test_what_the_inherited_state_rules_out_is_named(
    copied: tuple[Home, Store], at: str, settings: dict[str, Any], named: str
) -> None:
    home, store = copied
    with pytest.raises(CoevoError, match=named):
        fork(home, store, at, **settings)
    with store.read() as session:
        assert [run.name for run in queries.runs.list_runs(session)] == [RUN]


def test_prompts_and_the_votes_on_them_are_inherited(rounds: Forked, tmp_path: Path) -> None:
    _, store = copy_of(rounds.home, tmp_path)
    wrong = {"prompts.limit": 3, "dataset.votes": 8}
    _, faults = startable(store, "fork", "", 0, wrong, from_run="whole:1")
    assert {fault.setting for fault in faults} == {"prompts.limit", "dataset.votes"}


def test_rounds_that_are_one_training_need_the_optimiser_s_moments(rounds: Forked, tmp_path: Path) -> None:
    home, store = copy_of(rounds.home, tmp_path)
    with store.read() as session:
        solver = queries.checkpoints.get_checkpoint(session, "whole/solver/1")
    shutil.rmtree(home.moments(solver))
    _, faults = startable(store, "fork", "", 0, {}, from_run="whole:1")
    assert [fault.setting for fault in faults] == ["solver.training.optimiser"]
    fork(home, store, "whole:1", flow="self_train", solver__training__optimiser="fresh")


def test_a_fork_keeps_the_moments_that_it_begins_with(rounds: Forked, tmp_path: Path) -> None:
    """The other run goes on for two rounds, after which it needs other moments."""
    home, store = copy_of(rounds.home, tmp_path)
    fork(home, store, "whole:1", flow="self_train")
    prepare(home, store, RUN, "", 4, {}, "self_train")
    go_on(store, home)
    assert {"1", "4"} <= {path.name for path in (home.optimisers / RUN / "solver").iterdir()}
    go_on(store, home, "fork")
    assert _contents(store, home, "fork").keys() == rounds.second.keys()


@pytest.mark.parametrize("action", ["pause", "stop"])
def test_a_run_is_not_forked_after_an_iteration_after_which_it_did_not_go_on(
    copied: tuple[Home, Store], action: str
) -> None:
    home, store = copied
    result = {"action": action, "back_to": None, "warnings": [], "alarms": []}
    with store.write() as session:
        of_stage = (Stages.run == RUN, Stages.iteration == 1, Stages.stage == "check_health")
        session.execute(update(Stages).where(*of_stage).values(result=result))
    with pytest.raises(RunError, match=r"from_run: .*whole:0.*, got whole:1"):
        fork(home, store, "whole:1")
    fork(home, store, "whole:0")


def test_a_fork_begins_with_the_models_that_the_other_run_went_back_to(copied: tuple[Home, Store]) -> None:
    home, store = copied
    back = dict.fromkeys(("challenger", "solver"), "whole/base/0")
    result = {"action": "roll_back", "back_to": back, "warnings": [], "alarms": []}
    with store.write() as session:
        of_stage = (Stages.run == RUN, Stages.iteration == 1, Stages.stage == "check_health")
        session.execute(update(Stages).where(*of_stage).values(result=result))
    fork(home, store, "whole:1")
    fork(home, store, "whole:0", "first")
    with store.read() as session:
        for name, iteration in (("fork", 2), ("first", 1)):
            chain = Chain(session, name, stored_config(store, name), iteration)
            assert {role: chain.checkpoint(role, iteration - 1).id for role in chain.config.roles} == back


def test_an_unfinished_iteration_is_not_inherited(copied: tuple[Home, Store]) -> None:
    home, store = copied
    with store.write() as session:
        of_stage = (Stages.run == RUN, Stages.iteration == 2, Stages.stage == "check_health")
        session.execute(update(Stages).where(*of_stage).values(status="failed"))
    with pytest.raises(RunError, match=r"from_run: .*whole:1.*, got whole:2"):
        fork(home, store, "whole:2", iterations=3)


def test_a_fork_is_continued_and_is_no_other_run(copied: tuple[Home, Store]) -> None:
    home, store = copied
    for _ in range(2):
        fork(home, store, "whole:1", seed=11)
    prepare(home, store, RUN, "", 4, {})  # whose number of iterations is no longer that of the fork
    fork(home, store, "whole:1", seed=11)
    assert (stored_config(store, "fork").seed, stored_config(store, "fork").iterations) == (11, 2)
    for at, settings, named in (
        ("whole:0", {"seed": 11}, "name: run fork: .*whole:1.*whole:0"),
        ("whole:1", {"seed": 12}, "name: run fork: .*seed"),
    ):
        with pytest.raises(RunError, match=named):
            fork(home, store, at, **settings)
    with pytest.raises(RunError, match="name: run whole: "):
        fork(home, store, "whole:1", RUN)
    with pytest.raises(RunError, match=r"t: run fork: .*2.*, got 1"):
        check_start(run_of(store, "fork", home=home.path), 1)
    check_start(run_of(store, "fork", home=home.path), 2)


def test_the_files_of_inherited_checkpoints_stay(copied: tuple[Home, Store]) -> None:
    """Of four iterations, the run need not keep those of 1 to 3, if the base model is the best."""
    home, store = copied
    prepare(home, store, RUN, "", 4, {})
    go_on(store, home)
    fork(home, store, "whole:2")
    thinned = remove_unkept(home, store, RUN, Retention(keep="best_and_last"))
    roles = ("challenger", "solver", "labelled")
    assert {removal.checkpoint for removal in thinned} == {f"whole/{role}/3" for role in roles}
    with pytest.raises(RunError, match=r"from_run: .*whole:3.* whole/challenger/3 "):
        fork(home, store, "whole:3", "other")
    assert collect(home, store, timedelta(0)) == []
    deletion.delete(home, store, "fork", evaluations=True)
    assert len(remove_unkept(home, store, RUN, Retention(keep="best_and_last"))) == 6
