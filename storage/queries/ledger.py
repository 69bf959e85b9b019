"""The ledger: which stages of an iteration are done, who works on a stage, and when the lease of this owner expires.

An owner is a text that no other process ever uses. If a transaction that writes a batch also renews the lease, it fails
once another owner has claimed the stage. So two owners never both write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session

from core.types import Stage
from storage.errors import LeaseLost, StageHeld
from storage.models import Stages
from storage.queries.forks import made_by, of_run
from storage.queries.run_leases import holder_text, process_of, release_run, run_holder
from storage.queries.runs import get_run
from storage.queries.tables import columns, database_time, find_row, find_rows, insert_into, table_of
from storage.rows import StageRow

_DECIDING_STAGES: tuple[Stage, ...] = ("ask_a_person", "check_health")  # the first with a result decides


def claim_stage(
    session: Session, *, run: str, iteration: int, stage: Stage, owner: str, lease_seconds: float
) -> StageRow:
    """Claim a stage that is new or failed, or whose lease has expired. A stage that is done is returned as it is
    (`status == "done"`). Claiming one's own stage again renews the lease and counts as another attempt.

    Raises `StageHeld` when another owner has a live lease on the stage or on the run, and `NotThere` when there is no
    such run.
    """
    get_run(session, run)
    holder = run_holder(session, run)
    if holder is not None and holder.owner != owner:
        raise StageHeld(
            f"stage {_name(run, iteration, stage)}: expected nobody to work on run {run}, but {holder_text(holder)}"
        )
    now = database_time(session)
    lease = {"status": "running", "owner": owner, "lease_expires": now + timedelta(seconds=lease_seconds)}
    beginning = {"started_at": now, "progress_done": None, "progress_total": None, "progress_note": None}
    reset = {**beginning, "attempt": Stages.attempt + 1, "finished_at": None, "result": None, "error": None}
    # A single statement decides, so if two owners claim at once, one of them wins.
    own_or_expired = or_(Stages.owner == owner, Stages.lease_expires <= now)
    claimed = session.execute(
        insert_into(session, Stages)
        .values(run=run, iteration=iteration, stage=stage, **lease, attempt=1, started_at=now)
        .on_conflict_do_update(
            index_elements=["run", "iteration", "stage"],
            set_={**lease, **reset},
            where=or_(Stages.status == "failed", and_(Stages.status == "running", own_or_expired)),
        )
        .returning(*columns(Stages, StageRow))
    ).one_or_none()
    if claimed is not None:
        return StageRow(*claimed)
    current = find_stage(session, run=run, iteration=iteration, stage=stage)
    if current is not None and current.status == "done":
        return current
    raise StageHeld(f"stage {_name(run, iteration, stage)}: expected nobody to work on it, but {_holder(current)}")


def renew_lease(
    session: Session, *, run: str, iteration: int, stage: Stage, owner: str, lease_seconds: float
) -> StageRow:
    """Extend the lease to `lease_seconds` from now. Raises `LeaseLost` when `owner` no longer holds the stage."""
    expires = database_time(session) + timedelta(seconds=lease_seconds)
    return _update_held(session, run, iteration, stage, owner, lease_expires=expires)


def note_progress(
    session: Session, *, run: str, iteration: int, stage: Stage, owner: str, done: int, total: int, note: str
) -> None:
    """Store how far a stage is. Does nothing if `owner` does not hold the stage."""
    key = [Stages.run == run, Stages.iteration == iteration, Stages.stage == stage]
    held = [*key, Stages.owner == owner, Stages.status == "running"]
    values = {"progress_done": done, "progress_total": total, "progress_note": note}
    session.execute(update(table_of(Stages)).where(*held).values(values))


def finish_stage(
    session: Session, *, run: str, iteration: int, stage: Stage, owner: str, result: dict[str, Any]
) -> StageRow:
    """Mark a stage done, in the transaction of its last write. Raises `LeaseLost` when `owner` no longer holds it."""
    done = {"status": "done", "finished_at": database_time(session), "result": result}
    return _update_held(session, run, iteration, stage, owner, **done)


def fail_stage(session: Session, *, run: str, iteration: int, stage: Stage, owner: str, error: str) -> StageRow:
    """Mark a stage failed, so that it can be claimed. Raises `LeaseLost` when `owner` no longer holds it."""
    failed = {"status": "failed", "finished_at": database_time(session), "error": error}
    return _update_held(session, run, iteration, stage, owner, **failed)


def release_leases(session: Session, *, run: str, owner: str) -> list[StageRow]:
    """End the leases of an owner that is known to be dead, on the run and on its stages. The stages are returned; they
    can be claimed at once."""
    release_run(session, run=run, owner=owner)
    held = [Stages.run == run, Stages.owner == owner, Stages.status == "running"]
    release = update(table_of(Stages)).where(*held).values(lease_expires=database_time(session))
    return [StageRow(*row) for row in session.execute(release.returning(*columns(Stages, StageRow)))]


def find_stage(session: Session, *, run: str, iteration: int, stage: Stage) -> StageRow | None:
    key = [Stages.run == run, Stages.iteration == iteration, Stages.stage == stage]
    return find_row(session, Stages, StageRow, *key)


def stages_of(session: Session, run: str) -> list[StageRow]:
    """The stages of a run by iteration, and within an iteration in the order in which they were last started. A fork's
    first ones are those of its inherited iterations: their `run` is the one that made these."""
    order = [Stages.iteration, Stages.started_at]
    return find_rows(session, Stages, StageRow, of_run(session, Stages, run), order=order)


def result_of(session: Session, run: str, iteration: int, stage: Stage) -> Mapping[str, Any] | None:
    """The result of a stage of a run's iteration, which it may have inherited; None unless the stage is done."""
    row = find_stage(session, run=made_by(session, run, iteration), iteration=iteration, stage=stage)
    return row.result or {} if row is not None and row.status == "done" else None


def decision(session: Session, run: str, iteration: int) -> dict[str, Any]:
    """The decision after an iteration, a person's if one was asked: `action`, `back_to` and `warnings`."""
    results = [result_of(session, run, iteration, stage) for stage in _DECIDING_STAGES]
    return {"action": "ignore", "back_to": None, "warnings": [], **(next(filter(None, results), {}))}


def latest_stages(session: Session, runs: Sequence[str]) -> dict[str, list[StageRow]]:
    """Run -> the stages of its latest iteration, in the order in which they were last started; runs without stages are
    left out."""
    latest = select(Stages.run, func.max(Stages.iteration).label("iteration")).where(Stages.run.in_(runs))
    newest = latest.group_by(Stages.run).subquery()
    same = and_(Stages.run == newest.c.run, Stages.iteration == newest.c.iteration)
    statement = select(*columns(Stages, StageRow)).join(newest, same).order_by(Stages.run, Stages.started_at)
    rows = [StageRow(*row) for row in session.execute(statement)]
    return {run: [*stages] for run, stages in groupby(rows, key=lambda row: row.run)}


def rolled_back(session: Session, run: str) -> list[tuple[int, dict[str, str]]]:
    """Where a run was rolled back: (iteration, role -> checkpoint that it went back to), in order of the iterations.

    The checkpoints are the `back_to` in the results of stages that are done.
    """
    done = [row for row in stages_of(session, run) if row.status == "done" and row.result]
    return [(row.iteration, row.result["back_to"]) for row in done if row.result and row.result.get("back_to")]


def _update_held(session: Session, run: str, iteration: int, stage: Stage, owner: str, **values: Any) -> StageRow:
    key = [Stages.run == run, Stages.iteration == iteration, Stages.stage == stage]
    held = [*key, Stages.owner == owner, Stages.status == "running"]
    change = update(table_of(Stages)).where(*held).values(**values).returning(*columns(Stages, StageRow))
    row = session.execute(change).one_or_none()
    if row is None:
        holder = _holder(find_stage(session, run=run, iteration=iteration, stage=stage))
        raise LeaseLost(f"stage {_name(run, iteration, stage)}: expected {owner} to hold it, but {holder}")
    return StageRow(*row)


def _name(run: str, iteration: int, stage: Stage) -> str:
    return f"{run}/{iteration}/{stage}"


def _holder(row: StageRow | None) -> str:
    if row is None:
        return "nobody has claimed it"
    return (
        f"it is {row.status} in {process_of(row.owner)}, whose lease ends at {row.lease_expires:%Y-%m-%d %H:%M:%S} UTC"
    )
