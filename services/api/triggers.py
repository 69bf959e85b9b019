"""Runs are started, cancelled, resumed and decided on by triggering Prefect; what it starts is the orchestrator's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from core.errors import CoevoError
from core.settings.bounds import Iterations
from core.settings.config import RunConfig
from core.settings.parsing import parse_config
from core.types import Flow
from services.api.dependencies import RunName
from services.api.origins import same_site
from services.api.prefect import FlowRun, Prefect
from services.api.presets import Override, Presets, Setting, about, configured
from services.api.problems import documented, invalid
from services.api.schemas import Preset, Triggered
from storage import queries
from storage.errors import NotThere, StoreError
from storage.queries.runs import RUN_NAME
from storage.rows import RunRow
from storage.session import Store

router = APIRouter(tags=["triggers"])

# Of the settings of a run, and whether it is new. Raises `CoevoError`, naming the setting, where the run cannot start.
RefuseUnready = Callable[[RunConfig, bool], None]

_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]  # PostgreSQL, where Prefect may have its database, stores no NUL


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunRequest(_Body):
    """A run to start, or to go on with where one of this name was made from the same preset and settings."""

    name: str = Field(pattern=f"^{RUN_NAME.pattern}$", examples=["demo"])
    preset: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", examples=["demo"], description="One of /presets.")
    iterations: Iterations | None = Field(None, description="As the preset says where it is not given.")
    overrides: dict[Setting, Override] = Field(
        default={},
        max_length=100,
        examples=[{"dataset.candidates": 320}],
        description="Settings by their dotted names; a text must be a word that settings choose among.",
    )
    flow: Flow | None = Field(None, description="The preset's own where it is not given.")


class CancelRequest(_Body):
    why: _Text | None = Field(None, max_length=500, description="Prefect shows it with the flow run.")


class ResumeRequest(_Body):
    iterations: Iterations | None = Field(None, description="Go on to this many.")


class Decision(_Body):
    """What to do with a run whose guard raised an alarm."""

    decision: Literal["go on", "roll back", "stop"]
    note: _Text = Field("", max_length=2_000, description="Kept with the decision.")


def _prefect(request: Request) -> Prefect:
    return Prefect(request.app.state.prefect)


def _refuse_unready(request: Request) -> RefuseUnready:
    refuse_unready: RefuseUnready = request.app.state.refuse_unready
    return refuse_unready


def _store(request: Request) -> Store:
    """Read in short transactions: SQLite's writers would wait for one that is open while Prefect is asked."""
    store: Store = request.app.state.store
    return store


Triggering = Annotated[Prefect, Depends(_prefect)]
ReadSession = Annotated[Store, Depends(_store)]
Checking = Annotated[RefuseUnready, Depends(_refuse_unready)]
_WRITES: dict[str, Any] = {"dependencies": [Depends(same_site)], "status_code": 202}
_REFUSALS = documented(409, 503)


@router.get("/presets")
def list_presets(presets: Presets) -> list[Preset]:
    """The presets that a run can be started from."""
    return [Preset(name=name, about=about(path)) for name, path in sorted(presets.items())]


@router.post("/runs", responses=_REFUSALS, **_WRITES)
def create_run(
    store: ReadSession, prefect: Triggering, presets: Presets, check: Checking, wanted: RunRequest
) -> Triggered:
    """Start a run, which is in the store once its flow has begun; one that was made of the same goes on.

    It is checked before whether the run can start, so far as this process can know it (docs/api.md); /flow-runs has
    what becomes of one that was accepted.
    """
    config = configured(presets, wanted.preset, wanted.iterations, wanted.overrides)
    flow = config.kind
    if wanted.flow not in (None, flow):
        raise invalid("flow", f"expected {flow}, whose preset {wanted.preset} is, got {wanted.flow}")
    try:
        with store.read() as session:
            row = queries.runs.get_run(session, wanted.name)
    except NotThere:
        new = True
    else:
        new = False
        _refuse_another(row, wanted.preset, config)
        _refuse_ended(row, config.iterations)
    try:
        check(config, new)
    except CoevoError as error:
        raise invalid("preset", str(error)) from error
    settings = {"preset": wanted.preset, "iterations": wanted.iterations or 0, "overrides": wanted.overrides}
    return _started(store, prefect, flow, wanted.name, settings)


@router.post("/runs/{run}/cancel", responses={**_REFUSALS, **documented(404)}, **_WRITES)
def cancel_run(store: ReadSession, prefect: Triggering, run: RunName, wanted: CancelRequest) -> list[Triggered]:
    """End what is at a run, or waits to be; what is done stays, and it can be resumed."""
    active = [flow_run for flow_run in prefect.flow_runs(run) if flow_run.active]
    with store.read() as session:
        if not active:
            raise HTTPException(409, f"run {run}: nobody is at it; it is {queries.runs.get_run(session, run).status}")
        holder = queries.run_leases.run_holder(session, run)
    if holder is not None and not all(flow_run.deployed for flow_run in active):
        who = queries.run_leases.process_of(holder.owner)
        raise HTTPException(409, f"run {run}: {who} works on it, started by `coevo run`: stop it with Ctrl-C there")
    return [_said(prefect, prefect.cancel(flow_run, wanted.why)) for flow_run in active]


@router.post("/runs/{run}/resume", responses={**_REFUSALS, **documented(404)}, **_WRITES)
def resume_run(
    store: ReadSession, prefect: Triggering, check: Checking, run: RunName, wanted: ResumeRequest
) -> Triggered:
    """Go on with a run where it was, or for longer; nothing that is done is done again."""
    row = _row(store, run)
    has = row.config["iterations"]
    if wanted.iterations is not None and wanted.iterations < has:
        raise invalid("iterations", f"expected at least {has}, which run {run} has, got {wanted.iterations}")
    _refuse_ended(row, wanted.iterations or has)
    config = parse_config(row.config, source=f"run {run}")
    try:
        check(config, False)
    except CoevoError as error:
        raise HTTPException(409, f"run {run}: {error}") from error
    return _started(store, prefect, config.kind, run, {"preset": "", "iterations": wanted.iterations or 0})


@router.post("/runs/{run}/decision", responses={**_REFUSALS, **documented(404)}, **_WRITES)
def decide(store: ReadSession, prefect: Triggering, run: RunName, wanted: Decision) -> Triggered:
    """Answer a run that is paused until a person says what to do."""
    row = _row(store, run)
    paused = [flow_run for flow_run in prefect.flow_runs(run) if flow_run.state == "PAUSED"]
    if not paused:
        raise HTTPException(409, f"run {run}: it does not wait for a decision; it is {row.status}")
    return _said(prefect, prefect.answer(paused[0], wanted.model_dump()))


def _started(store: Store, prefect: Prefect, flow: Flow, run: str, settings: dict[str, Any]) -> Triggered:
    """Early refusals; that of two processes one works on the run is the ledger's to see to."""
    with store.read() as session:
        holder = queries.run_leases.run_holder(session, run)
    seen = prefect.flow_runs(run)
    for flow_run in seen:
        if flow_run.active:
            where = prefect.page_of(flow_run)
            raise HTTPException(409, f"run {run}: expected nobody at it; a flow run is {flow_run.state}: {where}")
    if holder is not None:
        who, until = queries.run_leases.process_of(holder.owner), f"{holder.expires:%H:%M:%S}"
        raise HTTPException(409, f"run {run}: {who} works on it; if it has died, it is free after {until} UTC")
    return _said(prefect, prefect.start(flow, run, settings, seen))


def _said(prefect: Prefect, flow_run: FlowRun) -> Triggered:
    return Triggered(run=flow_run.run, flow_run=flow_run.id, state=flow_run.state, url=prefect.page_of(flow_run))


def _refuse_another(row: RunRow, preset: str, config: RunConfig) -> None:
    if row.preset != preset:
        raise HTTPException(409, f"run {row.name}: exists, of preset {row.preset}, got {preset}. Choose another name")
    try:
        queries.runs.refuse_other_settings(row, config)
    except StoreError as error:
        raise HTTPException(409, str(error)) from error


def _refuse_ended(row: RunRow, iterations: int) -> None:
    if row.status == "stopped" or (row.status == "done" and iterations <= row.config["iterations"]):
        raise HTTPException(409, f"run {row.name}: it is {row.status}, of {row.config['iterations']} iterations")


def _row(store: Store, run: str) -> RunRow:
    with store.read() as session:
        return queries.runs.get_run(session, run)
