"""Which runs belong to an experiment, and to which of its arms."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.errors import NotThere
from storage.models import ExperimentRuns
from storage.queries.tables import find_row, find_rows, insert_dataclasses
from storage.rows import ExperimentRun


def add_run(session: Session, row: ExperimentRun) -> None:
    """Say which arm of which experiment an existing run is. A run belongs to one experiment at most."""
    insert_dataclasses(session, ExperimentRuns, [row], ExperimentRun)


def get_place(session: Session, run: str) -> ExperimentRun | None:
    """Which arm of which experiment a run is; None: of none."""
    return find_row(session, ExperimentRuns, ExperimentRun, ExperimentRuns.run == run)


def list_experiments(session: Session) -> list[str]:
    """The names of all experiments that have a run."""
    return [*session.scalars(select(ExperimentRuns.experiment).distinct().order_by(ExperimentRuns.experiment))]


def arms_of(session: Session, experiment: str) -> dict[str, list[str]]:
    """Arm -> its runs by their seeds. The baseline comes first. Raises `NotThere`."""
    arms: dict[str, list[str]] = {}
    named, order = ExperimentRuns.experiment == experiment, [ExperimentRuns.position, ExperimentRuns.seed]
    for run in find_rows(session, ExperimentRuns, ExperimentRun, named, order=order):
        arms.setdefault(run.arm, []).append(run.run)
    if not arms:
        known = ", ".join(list_experiments(session))
        raise NotThere(f"experiment {experiment}: no such experiment; the store has {known or 'none'}")
    return arms
