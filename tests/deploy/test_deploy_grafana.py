"""coevo's dashboard in Grafana: every query is run on a real PostgreSQL, and the columns that a panel
names are compared with those that the query returns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from core.figures import FIGURES
from core.questions.filtering import FilterStats
from core.settings.config import CoEvolution
from core.types import STAGES, Verdict
from orchestrator.installation.home import ROOT
from storage import queries
from storage.models import Alerts, Series, Stages
from storage.queries.tables import insert_new
from storage.session import Store

GRAFANA = ROOT / "deploy" / "grafana"
SERVICE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "coevo.json").read_text())
PANELS: dict[str, dict[str, Any]] = {panel["title"]: panel for panel in DASHBOARD["panels"]}
TRENDS = {title: panel for title, panel in PANELS.items() if panel["type"] == "trend"}
VARIABLES: dict[str, dict[str, Any]] = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
(DATA_SOURCE,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "coevo.yml").read_text())["datasources"]
CHOSEN = {"run": "demo", "oracle": "exact", "slice": "kept"}
NOW = datetime.now(UTC)
Rows = list[dict[str, Any]]


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with a run that has finished two iterations and is in its third, and a run that has not begun."""
    with store.write() as session:
        queries.runs.create_run(session, name="demo", config=CoEvolution(iterations=3), preset="demo")
        queries.runs.create_run(session, name="waits", config=CoEvolution(iterations=3))
        queries.runs.set_run_status(session, "demo", "running")
        insert_new(session, Series, [point for t in (0, 1, 2) for point in _points(t)])
        for t in (1, 2):
            stats = FilterStats(10, 5, 1, 2, 0, 0, 1, 1, 0.5, 0.0, 0)
            queries.figures.add_filter_stats(session, run="demo", iteration=t, stats=stats)
        insert_new(session, Stages, [_stage(t, stage, NOW) for t in (1, 2) for stage in STAGES])
        insert_new(session, Stages, [_stage(3, "train_solver", None)])
        insert_new(session, Alerts, [_alert(i, severity) for i, severity in enumerate(("warning", "critical"))])
    return store


def _points(iteration: int) -> Iterator[dict[str, Any]]:
    for name, figure in FIGURES.items():
        audited = name in ("label_accuracy", "ill_posed_share")
        interval = {"lo": 0.3, "hi": 0.4} if figure.interval else {"lo": None, "hi": None}
        for over in ("kept", "all"):
            point = {"run": "demo", "iteration": iteration, "name": name, "over": over, "value": 0.35, "n": 100}
            point |= {"interval": "share" if figure.interval else None}
            yield {**point, **interval, "oracle": "exact" if audited else "", "estimated": audited and iteration == 1}


def _stage(iteration: int, stage: str, ended: datetime | None) -> dict[str, Any]:
    key = {"run": "demo", "iteration": iteration, "stage": stage, "owner": "me", "attempt": 1}
    times = {"started_at": NOW - timedelta(hours=13), "finished_at": ended, "lease_expires": NOW + timedelta(hours=1)}
    progress = {"progress_done": 3, "progress_total": 20, "progress_note": "steps"}
    return {**key, **times, "status": "done" if ended else "running", "result": None, "error": None, **progress}


def _alert(number: int, severity: str) -> dict[str, Any]:
    identity = {"rule": "drop", "series": "label_accuracy", "over": "kept", "oracle": "exact", "severity": severity}
    figures = {"value": 0.5, "lo": 0.4, "hi": 0.6, "n": 96, "reference": 0.8, "threshold": None}
    notice = {"text": "it fell", "raised_at": NOW, "acknowledged_at": None, "acknowledged_by": None, "note": ""}
    return {"id": f"a{number}", "run": "demo", "iteration": 2, **identity, **figures, **notice}


def run_query(store: Store, sql: str) -> Rows:
    """The rows of a statement, with the variables written as Grafana's format `sqlstring` writes them."""
    used = set(re.findall(r"\$\{?(\w+)", sql))
    assert used <= VARIABLES.keys()
    for name in used:
        sql = sql.replace(f"${{{name}:sqlstring}}", f"'{CHOSEN[name]}'")
    assert "$" not in sql
    with store.read() as session:
        result = session.connection().exec_driver_sql(sql)
        return [dict(row) for row in result.mappings()]


def query(panel: dict[str, Any]) -> str:
    (target,) = panel["targets"]
    assert (target["format"], target["rawQuery"], target["datasource"]) == ("table", True, panel["datasource"])
    sql: str = target["rawSql"]
    return sql


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_every_panel_shows_columns_that_its_query_returns(filled: Store) -> None:
    for title, panel in PANELS.items():
        rows = run_query(filled, query(panel))
        assert rows, title
        for column in rows[0]:
            empty = {"acknowledged by"} if title == "Alerts" else set()
            assert column in empty or any(row[column] is not None for row in rows), (title, column)
        for name in _named_columns(panel):
            assert name in rows[0], (title, name)
    trends = [run_query(filled, query(panel)) for panel in TRENDS.values()]
    for rows, panel in zip(trends, TRENDS.values(), strict=True):
        iterations = [row[panel["options"]["xField"]] for row in rows]
        assert iterations == sorted(set(iterations))  # a trend panel needs an increasing x-axis
        assert {1, 2} <= set(iterations)
        assert all(isinstance(value, int | float) or value is None for row in rows for value in row.values())


def _named_columns(panel: dict[str, Any]) -> Iterator[str]:
    """The columns that a panel has settings for."""
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"]["id"] == "byName":
            yield override["matcher"]["options"]
        yield from (setting["value"] for setting in override["properties"] if setting["id"] == "custom.fillBelowTo")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_the_variables_offer_the_runs_and_oracles_of_the_store(filled: Store) -> None:
    assert [row["name"] for row in run_query(filled, VARIABLES["run"]["query"])] == ["waits", "demo"]
    assert [row["oracle"] for row in run_query(filled, VARIABLES["oracle"]["query"])] == ["exact"]
    assert VARIABLES["slice"]["query"] == "kept,all"


def test_the_data_source_uses_the_database_s_read_only_role() -> None:
    assert DATA_SOURCE["url"] == "postgres:5432"
    assert (DATA_SOURCE["jsonData"]["database"], DATA_SOURCE["user"]) == ("coevo", "grafana_reader")
    password = DATA_SOURCE["secureJsonData"]["password"]
    assert password.removeprefix("$") in SERVICE["environment"]
    expected = {"type": DATA_SOURCE["type"], "uid": DATA_SOURCE["uid"]}
    sources = [panel["datasource"] for panel in PANELS.values()]
    sources += [variable["datasource"] for variable in VARIABLES.values() if variable["type"] == "query"]
    assert all(source == expected for source in sources)


@pytest.mark.parametrize("file", [*(GRAFANA / "dashboards").glob("*.json")], ids=lambda file: file.stem)
def test_panels_are_distinct_and_do_not_overlap(file: Path) -> None:
    panels = json.loads(file.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len({panel["title"] for panel in panels})
    positions = [panel["gridPos"] for panel in panels]
    assert all(position["x"] + position["w"] <= 24 for position in positions)
    for a, b in combinations(positions, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)


def test_the_dashboard_has_every_series_verdict_and_stage() -> None:
    shown = " ".join(query(panel) for panel in PANELS.values())
    assert set(re.findall(r"\bname = '(\w+)'", shown)) == FIGURES.keys()
    verdicts, stages = query(PANELS["Questions by verdict"]), query(PANELS["Stage durations"])
    assert all(verdict in verdicts for verdict in get_args(Verdict))
    assert set(re.findall(r"stage = '(\w+)'", stages)) == set(STAGES)


def test_shares_are_shown_with_their_interval_and_their_n() -> None:
    shares = [panel for panel in TRENDS.values() if panel["fieldConfig"]["defaults"]["unit"] == "percentunit"]
    assert len(shares) >= 5
    for panel in shares:
        sql = query(panel)
        for name in re.findall(r'max\(value\) FILTER \(.*\) AS "(.+?)"', sql):
            assert f'AS "{name}: n"' in sql
            # A maximum and a mean over steps, which are not independent, have no interval.
            of_steps = ("prompts with a right rollout", "rollouts of the majority", "undecided rollouts")
            has_interval = name not in ("largest cluster", *of_steps)
            assert (f'AS "{name}: upper end"' in sql) == has_interval
            assert (f"{name}: lower end" in [*_named_columns(panel)]) == has_interval
