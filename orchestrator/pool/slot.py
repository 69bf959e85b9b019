"""A training's slot in the worker pool: it waits in the store's queue, and keeps its units while the block runs.

Every waiting process asks once a second, and whichever asks decides for all of them (`scheduler.py`) in one
transaction. A job lives as long as its owner holds its stage in the ledger: a driver that is killed loses its slot with
its lease, at once on the same machine. A stage that needs the inference applications waits for its turn of them before
it queues here, and no stage waits for a turn while it has a slot. So two runs cannot wait for each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import get_args

import ray
from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.settings.trainers import EasyR1Settings, TrainerSettings
from core.types import ResourceKind, Stage
from orchestrator.ledger import is_alive, owner
from orchestrator.pool.scheduler import PoolJob, to_start
from orchestrator.serving.checkpoints import reserved
from orchestrator.stages.context import Context
from storage import queries
from storage.errors import LeaseLost
from storage.rows import PoolRow
from trainers.local.trainer import kind_of

_POLL_S = 1.0
_SETTLE_S = 15.0
LIMIT = "COEVO_POOL_LIMIT"  # in the environment of whoever runs flows: the units that one training may have at most


class PoolError(CoevoError):
    """A training that can never get what it asks for; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a training asks of the cluster."""

    kind: ResourceKind
    units: float


def demand_of(settings: TrainerSettings, workers: int) -> Demand:
    """What EasyR1 asks for, or what each of the embedded trainer's workers has."""
    if isinstance(settings, EasyR1Settings):
        return Demand("GPU", settings.nodes * settings.gpus_per_node)
    return Demand(kind_of(settings), workers)


@contextmanager
def training_slot(
    context: Context, stage: Stage, demand: Demand, say: Callable[[str], None], has_turn: bool
) -> Iterator[Callable[[], None]]:
    """Wait for the demand, and have it for the block.

    The block gets a function that raises `LeaseLost` once the slot is another training's; call it where nothing would
    be lost. `has_turn`: the applications stay as they are meanwhile. Raises `PoolError`.
    """
    run, t, me = context.run, context.iteration, owner()
    _refuse_impossible(context, demand, has_turn)

    def join(session: Session) -> None:
        wish = partial(
            queries.pool.join_pool, kind=demand.kind, units=demand.units
        )
        wish(session, run=run, iteration=t, stage=stage, owner=me)

    with context.store.write() as session:
        join(session)
    try:
        while not _began(context, stage, join, say):
            time.sleep(_POLL_S)
        yield partial(_refuse_lost, context, stage)
    finally:
        with context.store.write() as session:
            queries.pool.leave_pool(session, run=run, iteration=t, stage=stage, owner=me)


def _refuse_impossible(context: Context, demand: Demand, has_turn: bool) -> None:
    at_most: dict[str, Callable[[], float]] = {
        "the cluster has": lambda: float(ray.cluster_resources().get(demand.kind, 0.0)),
        f"{LIMIT} allows": _limit,
    }
    if has_turn:
        at_most["beside the inference applications there are"] = lambda: _left(context, demand)
    for what, units_of in at_most.items():
        if demand.units > (units := units_of()):
            asked = f"run {context.run}: the training asks for {demand.units:g} {demand.kind}"
            raise PoolError(f"{asked}, {what} {units:g}")


def _left(context: Context, demand: Demand) -> float:
    """What the applications leave; those that were stopped just now may take a moment to give theirs back."""
    deadline = time.monotonic() + _SETTLE_S
    while (left := _capacity(context)[demand.kind]) < demand.units and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left


def _limit() -> float:
    given = os.environ.get(LIMIT) or "inf"
    try:
        return float(given)
    except ValueError as error:
        raise PoolError(f"{LIMIT}: expected a number, got {given!r}") from error


def _began(context: Context, stage: Stage, join: Callable[[Session], None], say: Callable[[str], None]) -> bool:
    mine = f"{context.run}/{context.iteration}/{stage}"
    capacity = _capacity(context)
    with context.store.write() as session:
        queries.pool.lock_pool(session)
        _drop_dead(session)
        rows = {_key(row): row for row in queries.pool.pool_jobs(session)}
        _refuse_another_owner(rows[mine])
        if rows[mine].status == "done":  # the lease ran out for a moment, and somebody took this driver for dead
            join(session)
            rows = {_key(row): row for row in queries.pool.pool_jobs(session)}
        started = to_start(_jobs(rows), capacity)
        for key in started:
            queries.pool.start_job(session, rows[key])
    if mine in started or rows[mine].status == "running":
        return True
    row = rows[mine]
    others = [f"{other.run} ({other.units:g})" for other in rows.values() if other.status == "running"]
    say(f"waiting for {row.units:g} {row.kind} of {capacity[row.kind]:g}; at work: {', '.join(others) or 'none'}")
    return False


def _capacity(context: Context) -> dict[ResourceKind, float]:
    """What the cluster has beside what the inference applications hold."""
    cluster, held = ray.cluster_resources(), reserved(context.services)
    return {kind: float(cluster.get(kind, 0.0)) - held[kind] for kind in get_args(ResourceKind)}


def _drop_dead(session: Session) -> None:
    for row in queries.pool.pool_jobs(session):
        if row.status != "done" and not is_alive(row.owner):  # killed on this very machine: no need to wait
            queries.ledger.release_leases(session, run=row.run, owner=row.owner)
    queries.pool.drop_abandoned(session)


def _jobs(rows: Mapping[str, PoolRow]) -> list[PoolJob]:
    used = dict[str, float]()
    for row in rows.values():
        used[row.run] = used.get(row.run, 0.0) + row.used
    return [
        PoolJob(
            key,
            row.kind,
            row.units,
            used[row.run],
            row.since.timestamp(),
            row.status == "running",
        )
        for key, row in rows.items()
        if row.status != "done"
    ]


def _refuse_lost(context: Context, stage: Stage) -> None:
    mine = f"{context.run}/{context.iteration}/{stage}"
    with context.store.read() as session:
        [row] = [row for row in queries.pool.pool_jobs(session) if _key(row) == mine]
    _refuse_another_owner(row)
    if row.status != "running":  # the lease ran out for a moment, and somebody took this driver for dead
        raise LeaseLost(f"stage {mine}: its lease ran out, and with it its slot in the worker pool; resume the run")


def _refuse_another_owner(row: PoolRow) -> None:
    if row.owner != owner():
        raise LeaseLost(f"stage {_key(row)}: its lease ran out, and {row.owner} has taken it over")


def _key(row: PoolRow) -> str:
    return f"{row.run}/{row.iteration}/{row.stage}"
