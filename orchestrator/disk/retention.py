"""Removes the files of checkpoints that a run does not keep (`checkpoints.keep`), after an iteration or by a command.

First the rows say that the files are removed, then they are. `coevo store gc` removes what a crash between left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from core.settings.config import Retention, RunConfig
from orchestrator.disk.files import discard, size_of
from orchestrator.installation.home import Home
from orchestrator.ledger import run_held
from orchestrator.runs import decision, stored_config
from orchestrator.stages.chain import Chain
from services.evaluations.figures import best_iteration
from storage import queries
from storage.session import Store


@dataclass(frozen=True, slots=True)
class Removal:
    """A checkpoint whose files a run does not keep, and the bytes that they take."""

    checkpoint: str
    path: Path
    bytes: int


def removable(home: Home, store: Store, run: str, retention: Retention) -> list[Removal]:
    """What a run need not keep now, in the order of the trainings. Nothing is changed.

    These checkpoints stay: of an iteration whose end is not decided or that a fork has inherited, outside this home, or
    asked by an unfinished evaluation. Raises `StoreError` if there is no such run.
    """
    config = stored_config(store, run)
    if retention.keep == "all":
        return []
    with store.read() as session:
        stages = queries.ledger.stages_of(session, run)
    # The last iteration after which it is decided how the run goes on. One that waits for a person is not decided.
    checked = [row.iteration for row in stages if row.stage == "check_health" and row.status == "done"]
    last = max((t for t in checked if decision(store, run, t)["action"] != "pause"), default=None)
    if last is None:
        return []
    removals = list[Removal]()
    with store.read() as session:
        needed = {*_needed(session, run, config, last), *_in_use(session, run)}
        for checkpoint in queries.checkpoints.checkpoints_of(session, run):
            path, t = Path(checkpoint.path), checkpoint.iteration
            stays = checkpoint.role == "base" or checkpoint.files_removed or t > last
            stays = stays or (isinstance(retention.keep, int) and t % retention.keep == 0)
            if not stays and checkpoint.id not in needed and path.is_relative_to(home.checkpoints / run):
                removals.append(Removal(checkpoint.id, path, size_of(path, set())))
    return removals


def remove_unkept(home: Home, store: Store, run: str, retention: Retention) -> list[Removal]:
    """Remove what a run need not keep, and return it.

    Raises `RunHeld` if another process works on the run. Raises `DiskError` if a file cannot be removed; `coevo store
    gc` removes the file later, since its row says "removed".
    """
    with run_held(store, run):
        removals = removable(home, store, run, retention)
        if removals:
            with store.write() as session:
                queries.checkpoints.lock(session, [removal.checkpoint for removal in removals])
                in_use = _in_use(session, run)  # an evaluation or a fork may have begun since
                removals = [removal for removal in removals if removal.checkpoint not in in_use]
                queries.checkpoints.note_removed(session, [removal.checkpoint for removal in removals])
            for removal in removals:
                discard(removal.path)
    return removals


def _in_use(session: Session, run: str) -> set[str]:
    """The run's checkpoints that a fork has inherited, or that an evaluation asks."""
    inherited, checkpoints = queries.forks.forks_of(session, run), queries.checkpoints.checkpoints_of(session, run)
    of_forks = {checkpoint.id for checkpoint in checkpoints if checkpoint.iteration in inherited}
    return of_forks | queries.evaluations.unfinished_on(session, run)


def _needed(session: Session, run: str, config: RunConfig, last: int) -> Iterator[str]:
    """The checkpoints from which the run can go on or with which it can end, and what `RUN:best` names."""
    chain = Chain(session, run, config, last + 1)
    yield from (chain.checkpoint(role, last).id for role in config.roles)
    decided = Chain(session, run, config, last)
    best = {chain.best_to_go_back_to(), decided.best(), best_iteration(session, run, config) or 0}  # 0: the base model
    for iteration in best:
        yield from decided.checkpoints_at(iteration).values()
    branches = {last, *best}
    for checkpoint in queries.checkpoints.checkpoints_of(session, run, "labelled"):
        if checkpoint.iteration in branches:
            yield checkpoint.id
