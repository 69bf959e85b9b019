"""Starts, cancels, resumes and answers runs through Prefect, which runs the orchestrator's flows."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.errors import CoevoError
from core.settings.config import RunConfig
from core.settings.costs import Budget
from core.settings.parsing import comment_of, parse_config
from core.settings.trees import by_dotted_names, with_overrides
from core.types import Flow
from core.validation.bounds import Iterations
from services.api import run_views
from services.api.dependencies import InstallationDependency, PrefectDependency, RunName, StoreDependency
from services.api.installation import Installation
from services.api.overrides import Override, Setting, changed, configured
from services.api.problems import documented, invalid
from services.api.schemas import Preset, PresetDetails, Triggered
from services.prefect.client import Prefect
from services.prefect.flow_runs import EXISTING, FlowRun
from storage import queries
from storage.errors import NotThere, StoreError
from storage.queries.runs import RUN_NAME
from storage.rows import RunDetail
from storage.session import Store

# These routes read the store in short transactions, which end before they ask Prefect: SQLite's writers wait for them.
router = APIRouter(tags=["triggers"])

_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]  # Prefect's database may be PostgreSQL, which cannot store NUL


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunRequest(_Body):
    """A run to start. If a run of this name with the same preset and settings exists, it is continued."""

    name: str = Field(pattern=f"^{RUN_NAME.pattern}$", examples=["demo"])
    preset: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", examples=["demo"], description="One of /presets."
    )
    from_run: str | None = Field(
        None,
        pattern=f"^{RUN_NAME.pattern}:[0-9]{{1,6}}$",
        description="In place of a preset: an iteration of another run, such as `demo:3`, after which this one begins. "
        "It has the other run's settings, and its iterations up to that one.",
    )
    iterations: Iterations | None = Field(None, description="By default that of the preset or of the other run.")
    overrides: dict[Setting, Override] = Field(
        default={},
        max_length=100,
        examples=[{"dataset.candidates": 320}],
        description="Settings by their dotted names, or in tables. A text must be one of the words that settings "
        "choose among, or the name of a benchmark or a suite of the server.",
    )
    flow: Flow | None = Field(None, description="By default that of the preset or of the other run.")

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        if (self.preset is None) == (self.from_run is None):
            got = "neither" if self.preset is None else "both"
            raise ValueError(f"preset: expected a preset or from_run, got {got}")
        return self


class CancelRequest(_Body):
    why: _Text | None = Field(None, max_length=500, description="Reason, which Prefect shows with the flow run.")


class ResumeRequest(_Body):
    iterations: Iterations | None = Field(None, description="Continue up to this number. By default that of the run.")
    budget: Budget | None = Field(None, description="Another budget. By default that of the run.")


class Decision(_Body):
    """What to do with a run whose guard raised an alarm."""

    decision: Literal["go on", "roll back", "stop"]
    note: _Text = Field("", max_length=2_000, description="Stored with the decision.")


_ON_A_RUN: dict[str, Any] = {"status_code": 202, "responses": documented(404, 409, 503)}


@router.get("/presets")
def list_presets(installation: InstallationDependency) -> list[Preset]:
    """The presets that a run can be started from, with what each needs and costs."""
    rows, describe = [], installation.describe_preset
    for name, path in sorted(installation.preset_files().items()):
        about, details = "", None
        with suppress(CoevoError):  # starting a run of this preset says what is wrong with it
            about = comment_of(path).partition("\n")[0]
            details = None if describe is None else PresetDetails.model_validate(describe(name))
        rows.append(Preset(name=name, about=about, details=details))
    return rows


@router.post("/runs", status_code=202, responses=documented(409, 503))
def create_run(
    store: StoreDependency, prefect: PrefectDependency, installation: InstallationDependency, body: RunRequest
) -> Triggered:
    """Start a run. It is stored once its flow has begun. An existing run with the same settings is continued.

    A run that cannot start is refused, as far as this process can know it (docs/api.md). The run's state says what
    becomes of one that was accepted.
    """
    config = _config_of(store, installation, body)
    flow, origin = config.kind, f"preset {body.preset}" if body.from_run is None else body.from_run
    if body.flow not in (None, flow):
        raise invalid("flow", f"expected {flow}, the flow of {origin}, got {body.flow}")
    try:
        with store.read() as session:
            row = queries.runs.get_run(session, body.name)
    except NotThere:
        new = True
    else:
        new = False
        if body.preset is not None and row.preset != body.preset:
            problem = f"exists with preset {row.preset}, got {body.preset}. Choose another name"
            raise HTTPException(409, f"run {row.name}: {problem}")
        queries.runs.refuse_other_settings(row, config)
        _refuse_fewer_iterations(row, body.iterations)
        _refuse_ended(row, config.iterations)
    try:
        if body.from_run is not None:
            installation.refuse_unforkable(store, body.from_run, body.name, config)
        installation.refuse_unready(config, new and body.from_run is None)
    except CoevoError as error:
        raise invalid("preset" if body.from_run is None else "from_run", str(error)) from error
    begins = {"preset": body.preset} if body.from_run is None else {"preset": EXISTING, "from_run": body.from_run}
    settings = {**begins, "iterations": body.iterations or 0, "overrides": by_dotted_names(body.overrides)}
    return _start(store, prefect, flow, body.name, settings)


def _config_of(store: Store, installation: Installation, body: RunRequest) -> RunConfig:
    """The configuration that the flow will make of a request. Raises `RequestValidationError`."""
    if body.preset is not None:
        return configured(installation, body.preset, body.iterations, body.overrides)
    other = (body.from_run or "").partition(":")[0]
    try:
        with store.read() as session:
            tree = queries.runs.config_of_run(session, other).model_dump(mode="json")
    except StoreError as error:
        raise invalid("from_run", str(error)) from error
    return changed(installation, "from_run", f"run {other}", tree, body.iterations, body.overrides)


@router.post("/runs/{run}/cancel", **_ON_A_RUN)
def cancel_run(
    store: StoreDependency, prefect: PrefectDependency, run: RunName, body: CancelRequest
) -> list[Triggered]:
    """Cancel the flow runs of a run that are at work or wait. What the run has done stays, and it can be resumed."""
    active = [flow_run for flow_run in prefect.flow_runs(run) if flow_run.active]
    with store.read() as session:
        if not active:
            queries.runs.get_run(session, run)
            now = run_views.state_of(session, run)
            raise HTTPException(409, f"run {run}: expected an active flow run, there is none; {run_views.text(now)}")
        holder = queries.run_leases.run_holder(session, run)
    if holder is not None and not all(flow_run.deployed for flow_run in active):
        process = queries.run_leases.process_of(holder.owner)
        how = queries.run_leases.interrupting(holder.owner)
        detail = f"run {run}: {process} works on it, started by `coevo run`: stop it {how}"
        raise HTTPException(409, detail)
    return [_triggered(store, prefect, prefect.cancel(flow_run, body.why)) for flow_run in active]


@router.post("/runs/{run}/resume", **_ON_A_RUN)
def resume_run(
    store: StoreDependency,
    prefect: PrefectDependency,
    installation: InstallationDependency,
    run: RunName,
    body: ResumeRequest,
) -> Triggered:
    """Continue a run where it stopped, or with more iterations. Nothing that is done is done again."""
    row = _run_row(store, run)
    _refuse_fewer_iterations(row, body.iterations)
    _refuse_ended(row, body.iterations or row.iterations)
    budget = {} if body.budget is None else body.budget.model_dump(exclude_none=True)
    overrides = {f"budget.{name}": amount for name, amount in budget.items()}
    try:
        queries.runs.config_from(row)
        config = parse_config(with_overrides(row.config, overrides), source=f"run {run}")
        installation.refuse_unready(config, False)
    except CoevoError as error:
        raise HTTPException(409, f"run {run}: {error}") from error
    settings = {
        "preset": EXISTING,
        "iterations": body.iterations or 0,
        **({"overrides": overrides} if overrides else {}),
    }
    return _start(store, prefect, config.kind, run, settings)


@router.post("/runs/{run}/decision", **_ON_A_RUN)
def decide(store: StoreDependency, prefect: PrefectDependency, run: RunName, body: Decision) -> Triggered:
    """Answer a run that is paused until a person decides what to do."""
    _run_row(store, run)
    paused = [flow_run for flow_run in prefect.flow_runs(run) if flow_run.state == "PAUSED"]
    if not paused:
        with store.read() as session:
            now = run_views.state_of(session, run)
        raise HTTPException(409, f"run {run}: it does not wait for a decision; {run_views.text(now)}")
    return _triggered(store, prefect, prefect.answer(paused[0], body.model_dump()))


def _start(store: Store, prefect: Prefect, flow: Flow, run: str, settings: dict[str, Any]) -> Triggered:
    """Start a flow run, unless the run is being worked on.

    This refuses early; if two processes start nevertheless, the ledger lets only one of them work on the run.
    """
    with store.read() as session:
        holder = queries.run_leases.run_holder(session, run)
    flow_runs = prefect.flow_runs(run)
    for flow_run in flow_runs:
        if flow_run.active:
            page = prefect.page_of(flow_run)
            detail = f"run {run}: expected no active flow run, but a flow run is {flow_run.state}: {page}"
            raise HTTPException(409, detail)
    if holder is not None:
        process, until = queries.run_leases.process_of(holder.owner), f"{holder.expires:%H:%M:%S}"
        detail = f"run {run}: {process} works on it; if the process has died, the run can be started after {until} UTC"
        raise HTTPException(409, detail)
    return _triggered(store, prefect, prefect.start(flow, run, settings, flow_runs))


def _triggered(store: Store, prefect: Prefect, flow_run: FlowRun) -> Triggered:
    with store.read() as session:
        now = run_views.state_of(session, flow_run.run, flow_run)
    page = prefect.page_of(flow_run)
    return Triggered(run=flow_run.run, flow_run=flow_run.id, state=now.state, reason=now.reason, url=page)


def _refuse_fewer_iterations(row: RunDetail, iterations: int | None) -> None:
    if iterations is not None and (problem := queries.runs.too_few_iterations(row, iterations)) is not None:
        raise invalid("iterations", problem)


def _refuse_ended(row: RunDetail, iterations: int) -> None:
    if row.status == "stopped" or (row.status == "done" and iterations <= row.iterations):
        count = row.iterations
        raise HTTPException(
            409, f"run {row.name}: expected a run that can continue, but it is {row.status}, with {count} iterations"
        )


def _run_row(store: Store, run: str) -> RunDetail:
    with store.read() as session:
        return queries.runs.get_run(session, run)
