"""Deletes a run: its rows in one transaction, then its files.

A crash before the transaction's end changes nothing. After a crash later, the run is gone and only files without rows
are left. The same command removes those of the run; `coevo store gc` removes them too, and also those of its
evaluations. The lease on the run's name is kept until the last file is removed, so that no process creates another run
of this name meanwhile.

The run's reports stay: somebody may have linked to them, and they are small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from orchestrator.disk.files import DiskError, Files, discard, files_of_run
from orchestrator.installation.home import Home
from orchestrator.ledger import LEASE_S, owner, refuse_held, run_held
from services.prefect.client import Prefect, PrefectError
from services.prefect.flow_runs import FlowRun
from services.views.states import states_of
from storage import queries
from storage.errors import NotThere
from storage.rows import ENDED
from storage.session import Store

_NAMED = 5  # evaluations that a message names


@dataclass(frozen=True, slots=True)
class Deletion:
    """What the deletion of a run removes: rows by table, and files. `evaluations` are those by `coevo evaluate`.

    `elsewhere` are folders of the run's checkpoints that are not in this home. They are not removed.
    """

    run: str
    rows: dict[str, int]
    evaluations: list[str]
    files: list[Files]
    elsewhere: list[str]

    @property
    def bytes(self) -> int:
        return sum(files.bytes for files in self.files)


def planned(home: Home, store: Store, run: str, *, evaluations: bool, in_prefect: bool = False) -> Deletion:
    """What `delete` would remove. Nothing is changed. `in_prefect` says whether there are flow runs of the run.

    Raises `NotThere` if there are neither rows nor files nor flow runs of the run, and `DiskError` if it must not be
    deleted: another run refers to it or to its checkpoints, or, without `evaluations`, an evaluation does that `coevo
    evaluate` made.
    """
    queries.runs.refuse_name(run)
    with store.read() as session:
        _refuse_references(session, run, evaluations)
        rows = queries.run_rows.rows_of_run(session, run)
        rows.pop("run_leases", None)  # it says who works on the run, this process perhaps
        by_hand = [row.id for row in queries.run_rows.evaluations_by_hand(session, run)]
        files = files_of_run(home, run, queries.run_rows.evaluation_ids(session, run))
        checkpoints = queries.checkpoints.checkpoints_of(session, run)
        folders = [Path(checkpoint.path) for checkpoint in checkpoints if checkpoint.run == run]
        if not rows and not files and not in_prefect:
            queries.runs.get_run(session, run)  # raises, with the names of the runs that there are
            raise NotThere(f"run {run}: no such run")
    elsewhere = [str(folder) for folder in folders if not folder.is_relative_to(home.checkpoints / run)]
    return Deletion(run, rows, by_hand, files, elsewhere)


def refuse_at_work(store: Store, run: str, prefect: Prefect | None) -> list[FlowRun]:
    """Raise `RunHeld` if a live process works on the run, and `DiskError` if Prefect has an active flow run of it.

    Returns the flow runs that Prefect has of it, all of which have ended. It also raises `DiskError` if Prefect does
    not answer. `prefect` is None if there is no Prefect server.
    """
    refuse_held(store, run)
    try:
        flow_runs = prefect.flow_runs(run) if prefect else []
    except PrefectError as error:
        raise DiskError(
            f"run {run}: Prefect may have active flow runs of it: {error}. If the services have ended, "
            "`coevo down` makes this known"
        ) from error
    with store.read() as session:
        stored = queries.runs.runs_named(session, [run]).get(run)
        ended_at = stored.updated_at if stored is not None and stored.status in ENDED else None
        # Nobody holds the run: if it has ended since a flow run began, the flow run's process is gone.
        active = [flow_run for flow_run in flow_runs if flow_run.active and not flow_run.changed_status(ended_at)]
        state = states_of(session, {run: stored}, {run: active[0]})[run] if active else None
    if state is not None:
        raise DiskError(f"run {run}: {state.reason}; nothing was changed. Cancel it first: `coevo runs cancel {run}`")
    return flow_runs


def delete_flow_runs(prefect: Prefect | None, flow_runs: Iterable[FlowRun]) -> None:
    """Delete the flow runs of deleted runs in Prefect. Otherwise a run would still be listed, as one that failed before
    it began. Raises `DiskError` if Prefect does not answer."""
    if prefect is None:
        return
    try:
        for flow_run in flow_runs:
            prefect.delete(flow_run)
    except PrefectError as error:
        raise DiskError(f"all is deleted but the flow runs in Prefect: {error}") from error


def delete(home: Home, store: Store, run: str, *, evaluations: bool, in_prefect: bool = False) -> Deletion:
    """Delete a run with its rows and files, or what an interrupted deletion left of it. Returns what was removed.

    The caller deletes its flow runs, if there are any (`in_prefect`).

    Raises what `planned` raises, and `RunHeld`; then nothing is changed.
    """
    with run_held(store, run):
        deletion = planned(
            home, store, run, evaluations=evaluations, in_prefect=in_prefect
        )  # it may have changed since it was shown
        if deletion.rows:
            with store.write() as session:
                _refuse_references(session, run, evaluations)
                queries.runs.delete_run(session, run)
                queries.run_leases.claim_run(session, run=run, owner=owner(), lease_seconds=LEASE_S)
        for files in deletion.files:
            discard(files.path)
    return deletion


def _refuse_references(session: Session, run: str, evaluations: bool) -> None:
    if others := queries.run_rows.referring_runs(session, run):
        raise DiskError(
            f"run {run}: cannot be deleted: its iterations or its checkpoints are referred to by {_names(others)}; "
            "delete these first"
        )
    by_hand = queries.run_rows.evaluations_by_hand(session, run)
    if by_hand and not evaluations:
        titles = [f"evaluation {row.id} ({row.model} on {row.benchmark})" for row in by_hand]
        measured = f"its checkpoints are what {_names(titles)} measured"
        raise DiskError(f"run {run}: {measured}; --evaluations deletes these evaluations too")


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
