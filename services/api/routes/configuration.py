"""The configuration of a run, and what runs are compared by: their settings and any of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from services.api.dependencies import InstallationDependency, RunName, StoreDependency
from services.api.problems import documented
from services.comparison.runs import counted_runs
from services.comparison.settings import SettingsComparison, compare_settings
from services.views.configuration import Configuration, configuration_of
from services.views.latest_figures import LatestFigures, latest_figures
from services.views.series import ComparedFigure, LabelledCurve, figures_of, labelled_curves
from storage import queries
from storage.queries.runs import RUN_NAME

router = APIRouter(tags=["configuration"])

_WORD = r"^[a-z0-9_]{1,100}$"
Runs = Annotated[
    list[Annotated[str, Query(pattern=f"^{RUN_NAME.pattern}$")]],
    Query(min_length=1, max_length=20, examples=[["demo", "third"]]),
]
Oracle = Annotated[str | None, Query(pattern=_WORD, description="By default the first by name.")]


@router.get("/runs/{run}/configuration", responses=documented(404, 409))
def get_configuration(store: StoreDependency, installation: InstallationDependency, run: RunName) -> Configuration:
    """Every setting of a run with its source, its default and the paper's value, and the configuration as TOML."""
    with store.read() as session:
        preset = queries.runs.get_run(session, run).preset
        return configuration_of(session, run, installation.preset_files().get(preset or ""), installation.papers)


@router.get("/comparison/settings", responses=documented(404, 409))
def get_settings_comparison(store: StoreDependency, run: Runs) -> SettingsComparison:
    """The settings in which runs differ, and the groups of runs that differ only in their seed and length."""
    with store.read() as session:
        return compare_settings(session, run)


@router.get("/comparison/figures", responses=documented(404))
def list_compared_figures(store: StoreDependency, run: Runs) -> list[ComparedFigure]:
    """The figures that any of these runs has, for /comparison/series."""
    with store.read() as session:
        _refuse_unknown(session, run)
        return figures_of(session, run)


@router.get("/comparison/series", responses=documented(404, 409))
def get_compared_series(
    store: StoreDependency,
    run: Runs,
    name: Annotated[str, Query(pattern=_WORD, examples=["kl"], description="One of the figures.")],
    by: Annotated[
        Literal["iteration", "step"], Query(description="Steps of all iterations are counted on.")
    ] = "iteration",
    grouped: Annotated[
        bool, Query(description="The means of runs that differ only in their seed, over those that have ended.")
    ] = False,
    oracle: Oracle = None,
) -> list[LabelledCurve]:
    """One figure of each run, or of each group of runs; those without it are left out."""
    with store.read() as session:
        _refuse_unknown(session, run)
        arms = {name_of_run: [name_of_run] for name_of_run in run}
        if grouped:
            groups = compare_settings(session, run).groups
            arms = {group.label: counted_runs(session, group.runs) for group in groups}
        return labelled_curves(session, arms, name, by == "step", oracle)


@router.get("/comparison/latest", responses=documented(404))
def list_latest_figures(
    store: StoreDependency,
    run: Runs,
    name: Annotated[list[Annotated[str, Query(pattern=_WORD)]], Query(min_length=1, max_length=20, examples=[["kl"]])],
    baseline: Annotated[
        str | None, Query(pattern=f"^{RUN_NAME.pattern}$", description="One of the store's runs.")
    ] = None,
    oracle: Oracle = None,
) -> list[LatestFigures]:
    """Figures of each run after its last and its best iteration, and their differences to the baseline's."""
    with store.read() as session:
        _refuse_unknown(session, [*run, *([] if baseline is None else [baseline])])
        return latest_figures(session, run, name, baseline, oracle)


def _refuse_unknown(session: Session, runs: Sequence[str]) -> None:
    for run in runs:
        queries.runs.get_run(session, run)
