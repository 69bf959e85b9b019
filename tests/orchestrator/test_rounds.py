"""Rounds of `self_train` on a real Ray: where they are one training, AdamW's moments go on with the checkpoint that a
round starts from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from safetensors.torch import load_file

from core.types import Checkpoint, StageKey
from orchestrator.installation.home import Home
from orchestrator.ledger import run_once
from orchestrator.pool import slot
from orchestrator.runs import prepare
from orchestrator.stages.context import Context, StageError
from orchestrator.stages.read_prompts import read_prompts
from orchestrator.stages.train_solver import train_solver
from orchestrator.stages.training.rounds import remove_unneeded
from storage.errors import CheckpointError, LeaseLost
from storage.session import Store
from tests.orchestrator.test_stage_check_health import ten_items
from tests.synthetic_run import add_evaluations, context_of, finish

SMALL = {
    "prompts.limit": 4,
    "solver.training.steps": 2,
    "solver.training.prompts_per_step": 2,
    "solver.training.rollouts_per_prompt": 4,
    "solver.training.workers": 1,
    "solver.training.optimiser": "continued",
    "solver.training.schedule": "cosine",
    "solver.training.sampling": {"max_tokens": 24},
}


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot, "reserved", lambda _: {"CPU": 0.0, "GPU": 0.0})  # there are no applications to ask about
        yield
    ray.shutdown()


def begin(store: Store, home: Path, run: str, rounds: int, **settings: object) -> Context:
    """A run that has read its prompts; the context of its first round."""
    prepare(Home(home), store, run, "micro", rounds, {**SMALL, **settings}, "self_train")
    context = context_of(store, run, 1, home=home)
    run_once(store, StageKey(run, 0, "read_prompts"), lambda: read_prompts(context))
    return context


def train_round(context: Context, t: int) -> Checkpoint:
    """Train round t as the flow does; returns its checkpoint."""
    at_round = replace(context, iteration=t)
    run_once(context.store, at_round.key, lambda: train_solver(at_round))
    return at_round.checkpoint("solver", t)


def evaluate(context: Context, t: int, right: int) -> None:
    """Store that `right` of ten questions of early stopping's benchmark are answered after round t."""
    with context.store.write() as session:
        key = f"{context.run}/solver/{t}" if t else f"{context.run}/base/0"
        add_evaluations(session, checkpoint=key, benchmark="micro-validation", items=ten_items(right))


def moments_of(context: Context) -> dict[str, int]:
    """Round -> the number of AdamW's steps in the moments that are kept."""
    folders = (context.run.home.optimisers / context.run.name / "solver").iterdir()
    return {folder.name: int(load_file(folder / "optimizer.safetensors")["0.step"].item()) for folder in folders}


def test_two_rounds_make_the_checkpoint_of_one_training(sqlite: Store, tmp_path: Path) -> None:
    rounds = begin(sqlite, tmp_path, "rounds", 2)
    train_solver(rounds)  # a process that was killed before its last write
    train_round(rounds, 1)
    whole = train_round(begin(sqlite, tmp_path, "whole", 1, **{"solver.training.steps": 4}), 1)
    fresh = begin(sqlite, tmp_path, "fresh", 2, **{"solver.training.optimiser": "fresh"})
    train_round(fresh, 1)
    last = train_round(rounds, 2)
    assert last.sha256 == whole.sha256
    assert last.sha256 != train_round(fresh, 2).sha256
    assert not (fresh.run.home.optimisers / "fresh").exists()
    start = rounds.checkpoint("solver", 0)
    assert {file.name for file in Path(last.path).iterdir()} == {file.name for file in Path(start.path).iterdir()}


def test_a_round_after_a_roll_back_has_the_moments_of_the_checkpoint_that_it_starts_from(
    sqlite: Store, tmp_path: Path
) -> None:
    """Round 1 is the best. Round 3 is rolled back to it, and round 4 goes on from its moments."""
    context = begin(sqlite, tmp_path, "back", 5, **{"solver.training.schedule": "constant"})
    evaluate(context, 0, 3)
    for t, right in ((1, 5), (2, 4), (3, 1)):
        train_round(context, t)
        evaluate(context, t, right)
    assert moments_of(context) == {"1": 2, "2": 4, "3": 6}  # the best, the start of round 3, and its result
    with sqlite.write() as session:
        finish(session, "back", 3, "check_health", {"back_to": {"solver": "back/solver/1"}}, 1)
    assert train_round(context, 4).parent == "back/solver/1"
    assert moments_of(context) == {"1": 2, "4": 4}
    evaluate(context, 4, 6)
    train_round(context, 5)
    assert moments_of(context) == {"4": 4, "5": 6}


def test_moments_that_are_damaged_or_gone_are_not_used(sqlite: Store, tmp_path: Path) -> None:
    context = begin(sqlite, tmp_path, "damaged", 2)
    train_round(context, 1)
    file = context.run.home.optimisers / "damaged" / "solver" / "1" / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(CheckpointError, match=r"optimisers/damaged/solver/1: optimizer.safetensors has changed"):
        train_round(context, 2)
    file.unlink()
    file.with_name("manifest.json").unlink()
    file.parent.rmdir()
    with pytest.raises(StageError, match=r"expected the optimiser's moments of damaged/solver/1 in .*, there are none"):
        train_round(context, 2)


def test_a_process_that_has_lost_its_round_removes_no_moments(sqlite: Store, tmp_path: Path) -> None:
    """It was suspended while another process ended its round: the moments of that round are those of the next one."""
    context = begin(sqlite, tmp_path, "lost", 3)
    train_round(context, 1)
    lost = context_of(sqlite, "lost", 2, home=tmp_path)
    start = lost.checkpoint("solver", 1)
    train_round(context, 2)
    with pytest.raises(LeaseLost):
        remove_unneeded(lost, start)
    assert moments_of(context) == {"1": 2, "2": 4}
