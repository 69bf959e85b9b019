"""A training's slot in the worker pool: it waits in the store's queue, and keeps its units while the block runs.

Every waiting process looks at the queue once a second and decides for all jobs (`scheduler.py`) in one transaction. A
job lives as long as its owner holds its stage in the ledger: a killed process loses its slot with its lease, on the
same machine at once. A stage that needs the inference applications waits for them before it queues here, and no stage
waits for them while it has a slot. So two runs cannot wait for each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import get_args

import ray
from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.settings.trainers import EasyR1Settings, TrainerSettings
from core.types import ResourceKind, StageKey
from orchestrator.installation.home import Services
from orchestrator.ledger import is_alive, owner, repeated, stage_write
from orchestrator.pool.scheduler import PoolJob, to_start
from orchestrator.run import Run
from orchestrator.serving.checkpoints import reserved
from storage import queries
from storage.errors import LeaseLost
from storage.rows import PoolRow
from trainers.local.trainer import kind_of

_POLL_S = 1.0
_SETTLE_S = 15.0  # for applications that were just stopped to release their units
LIMIT = "COEVO_POOL_LIMIT"  # environment variable of the process that runs the flow: the most units of one training


class PoolError(CoevoError):
    """A training requests more than there is; the message names both numbers."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The resources that a training needs."""

    kind: ResourceKind
    units: float


def demand_of(settings: TrainerSettings, workers: int, gpu_share: float = 1.0) -> Demand:
    """The GPUs of EasyR1's nodes, or one CPU, or `gpu_share` of a GPU, for each worker of the embedded trainer."""
    if isinstance(settings, EasyR1Settings):
        return Demand("GPU", settings.nodes * settings.gpus_per_node)
    kind = kind_of(settings)
    return Demand(kind, workers * gpu_share if kind == "GPU" else workers)


@contextmanager
def training_slot(
    run: Run, key: StageKey, demand: Demand, note: Callable[[str], None], *, holds_applications: bool
) -> Iterator[Callable[[], None]]:
    """Wait until the demand is available, and hold it while the block runs. While it waits, the stage's note says so.

    The block gets a function that raises `LeaseLost` if the slot has been lost; call it where no work would be lost.
    `holds_applications`: this stage has exclusive use of the inference applications, so none of them will stop and
    release units. Raises `PoolError` if the demand can never be met, and `LeaseLost` if this process has lost the
    stage: it must not take the slot of the process that has it.
    """
    where, me = asdict(key), owner()
    _refuse_impossible(run, demand, holds_applications)

    def join(session: Session) -> None:
        queries.pool.join_pool(session, **where, owner=me, kind=demand.kind, units=demand.units)

    with stage_write(run.store, key) as session:
        join(session)
    try:
        noted = ""
        while (waits_for := _try_to_begin(run, key, join)) is not None:
            if waits_for != noted:
                note(waits_for)
                noted = waits_for
            time.sleep(_POLL_S)
        note("")
        charge = partial(queries.pool.charge_job, **where, owner=me)

        def refuse_lost() -> None:
            with run.store.read() as session:
                row = _own_job(session, key)
            if row.status != "running":  # the lease ran out for a moment, and another process dropped this job
                lost = "its lease ran out, and with it its slot in the worker pool; resume the run"
                raise LeaseLost(f"stage {_key(row)}: {lost}")

        with repeated(run.store, charge, f"pool {run}"):
            yield refuse_lost
    finally:
        with run.store.write() as session:
            queries.pool.leave_pool(session, **where, owner=me)


def _refuse_impossible(run: Run, demand: Demand, holds_applications: bool) -> None:
    def refuse_more_than(units: float, limit: str) -> None:
        if demand.units > units:
            request = f"run {run}: the training requests {demand.units:g} {demand.kind}"
            raise PoolError(f"{request}, but {limit} {units:g}")

    refuse_more_than(float(ray.cluster_resources().get(demand.kind, 0.0)), "the cluster has")
    value = os.environ.get(LIMIT) or "inf"
    try:
        limit = float(value)
    except ValueError as error:
        raise PoolError(f"{LIMIT}: expected a number, got {value!r}") from error
    refuse_more_than(limit, f"{LIMIT} allows")
    if holds_applications:
        deadline = time.monotonic() + _SETTLE_S
        while (units := _capacity(run.services)[demand.kind]) < demand.units and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        refuse_more_than(units, "the inference applications leave")


def _capacity(services: Services) -> dict[ResourceKind, float]:
    """The units of the cluster that the inference applications do not hold."""
    cluster, held = ray.cluster_resources(), reserved(services)
    return {kind: float(cluster.get(kind, 0.0)) - held[kind] for kind in get_args(ResourceKind)}


def _try_to_begin(run: Run, key: StageKey, join: Callable[[Session], None]) -> str | None:
    """Apply the rule to all jobs. Returns None if this one has begun, else what it waits for."""
    capacity = _capacity(run.services)
    with stage_write(run.store, key) as session:
        queries.pool.lock_pool(session)
        for row in queries.pool.unfinished_jobs(session):
            if not is_alive(row.owner):  # it was killed here
                queries.ledger.release_leases(session, run=row.run, owner=row.owner)
        queries.pool.drop_abandoned(session)
        if _own_job(session, key).status == "done":  # the lease ran out for a moment, and another process dropped it
            join(session)
        rows = {_key(row): row for row in queries.pool.unfinished_jobs(session)}
        used = queries.pool.used_by_run(session)
        jobs = [
            PoolJob(its_key, row.kind, row.units, used[row.run], row.since.timestamp(), row.status == "running")
            for its_key, row in rows.items()
        ]
        started = to_start(jobs, capacity)
        for its_key in started:
            queries.pool.start_job(session, rows[its_key])
    own_key = f"{key.run}/{key.iteration}/{key.stage}"
    own = rows[own_key]
    if own_key in started or own.status == "running":
        return None
    others = [f"{other.run} ({other.units:g})" for other in rows.values() if other.status == "running"]
    return f"waiting for {own.units:g} {own.kind} of {capacity[own.kind]:g}; running: {', '.join(others) or 'none'}"


def _own_job(session: Session, key: StageKey) -> PoolRow:
    """The stage's job. Raises `LeaseLost` if it is another process's by now."""
    row = queries.pool.job_of(session, **asdict(key))
    if row.owner != owner():
        raise LeaseLost(f"stage {_key(row)}: its lease ran out, and {row.owner} has taken it over")
    return row


def _key(row: PoolRow) -> str:
    return f"{row.run}/{row.iteration}/{row.stage}"
