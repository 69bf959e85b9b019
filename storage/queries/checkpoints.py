"""Published checkpoints, and which was trained from which."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, bindparam, case, literal, select, update
from sqlalchemy.orm import Session

from core.types import Checkpoint, CheckpointRole, checkpoint_id
from storage.errors import NotThere, StoreError
from storage.models import Checkpoints
from storage.queries.forks import made_by, of_run
from storage.queries.tables import columns, find_row, find_rows, insert_new, table_of

_TABLE = table_of(Checkpoints)


def add_checkpoint(session: Session, checkpoint: Checkpoint, manifest: Mapping[str, str]) -> None:
    """Record a published checkpoint; `manifest` maps file names to their sha256 (`storage.files.checkpoints.manifest`).

    Raises `StoreError` when a checkpoint of this id exists with other bytes.
    """
    insert_new(session, Checkpoints, [{**asdict(checkpoint), "manifest": dict(manifest)}])
    stored = get_checkpoint(session, checkpoint.id)
    if stored.sha256 != checkpoint.sha256:
        raise StoreError(
            f"checkpoint {checkpoint.id}: exists with sha256 {stored.sha256}, got {checkpoint.sha256}:"
            " a published checkpoint never changes"
        )


def get_checkpoint(session: Session, checkpoint: str) -> Checkpoint:
    row = find_row(session, Checkpoints, Checkpoint, Checkpoints.id == checkpoint)
    if row is None:
        raise NotThere(f"checkpoint {checkpoint}: no such checkpoint")
    return row


def id_of(session: Session, run: str, role: CheckpointRole, iteration: int) -> str:
    """The key of a run's checkpoint, which of a fork may be another run's. There need not be one."""
    return checkpoint_id(made_by(session, run, iteration), role, iteration)


def manifest_of(session: Session, checkpoint: str) -> dict[str, str]:
    """File name -> sha256, as it was published."""
    manifest = session.scalar(select(Checkpoints.manifest).where(Checkpoints.id == checkpoint))
    if manifest is None:
        raise NotThere(f"checkpoint {checkpoint}: no such checkpoint")
    return manifest


def checkpoints_of(session: Session, run: str, role: CheckpointRole | None = None) -> list[Checkpoint]:
    """A run's checkpoints in the order of their trainings, the base model first; with `role`, only those of this role.
    A fork's first ones are those of the runs that made its inherited iterations.

    Within an iteration, the Challenger is trained before the Solver, as the names of the roles sort, and the Solver is
    trained on labelled data last.
    """
    of_role = [of_run(session, Checkpoints, run), *([] if role is None else [Checkpoints.role == role])]
    is_branch = case((Checkpoints.role == "labelled", 1), else_=0)
    order = [Checkpoints.iteration, is_branch, Checkpoints.role, Checkpoints.id]
    return find_rows(session, Checkpoints, Checkpoint, *of_role, order=order)


def solvers_of(session: Session, run: str) -> list[Checkpoint]:
    """S(0), which is the base model, and every Solver of the loop that the run has trained, by iteration."""
    return [checkpoint for checkpoint in checkpoints_of(session, run) if checkpoint.role in ("base", "solver")]


def lock(session: Session, ids: Collection[str]) -> None:
    """Have other transactions that lock these checkpoints wait until this one has ended."""
    session.execute(select(_TABLE.c.id).where(_TABLE.c.id.in_(ids)).order_by(_TABLE.c.id).with_for_update()).all()


def note_removed(session: Session, ids: Collection[str]) -> None:
    """Record that the files of these checkpoints are no longer there. Their rows stay."""
    session.execute(update(_TABLE).where(_TABLE.c.id.in_(ids)).values(files_removed=True))


def children_of(session: Session, checkpoint: str) -> list[Checkpoint]:
    """The checkpoints that were trained from this one, by run and iteration."""
    return find_rows(
        session,
        Checkpoints,
        Checkpoint,
        Checkpoints.parent == checkpoint,
        order=[Checkpoints.run, Checkpoints.iteration, Checkpoints.role],
    )


def descendants_of(session: Session, checkpoint: str) -> list[Checkpoint]:
    """The children of a checkpoint, their children, and so on: the nearest first, then by run and iteration."""
    return [Checkpoint(*row) for row in session.execute(_descendants(), {"id": checkpoint})]


def lineage(session: Session, checkpoint: str) -> list[Checkpoint]:
    """The checkpoint, its parent, and so on up to the base model."""
    ancestors = {row[0]: Checkpoint(*row) for row in session.execute(_ancestors(), {"id": checkpoint})}
    if not ancestors:
        raise NotThere(f"checkpoint {checkpoint}: no such checkpoint")
    # SQL guarantees no order for the rows of a recursive query.
    chain = [ancestors[checkpoint]]
    while (parent := chain[-1].parent) is not None:
        chain.append(ancestors[parent])
    return chain


# These statements are cached, because building one takes several times as long as running it.
@lru_cache
def _descendants() -> Select[*tuple[Any, ...]]:
    below = select(_TABLE.c.id, literal(0).label("depth")).where(_TABLE.c.id == bindparam("id")).cte(recursive=True)
    child = _TABLE.alias()
    below = below.union_all(select(child.c.id, below.c.depth + 1).where(child.c.parent == below.c.id))
    statement = (
        select(*columns(Checkpoints, Checkpoint)).join(below, below.c.id == _TABLE.c.id).where(below.c.depth > 0)
    )
    return statement.order_by(below.c.depth, _TABLE.c.run, _TABLE.c.iteration, _TABLE.c.role)


@lru_cache
def _ancestors() -> Select[*tuple[Any, ...]]:
    names = [column.name for column in columns(Checkpoints, Checkpoint)]
    above = select(*columns(Checkpoints, Checkpoint)).where(_TABLE.c.id == bindparam("id")).cte(recursive=True)
    parent = _TABLE.alias()
    above = above.union_all(select(*(parent.c[name] for name in names)).where(parent.c.id == above.c.parent))
    return select(above)
