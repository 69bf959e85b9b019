"""What the guard and the drift rules of this version say of a run's stored rows: which alerts, in which iterations.

Nothing is written, and no alert is raised. The series are computed anew, because a run of an older version has not
stored all of them. Each signal of the guard counts, also one that the run ignores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from core.figures import figures_of_rule
from core.settings.config import RunConfig
from core.statistics.guard import Signal
from orchestrator.installation.home import Home, Services
from orchestrator.run import Run
from orchestrator.stages.check_health import alarms_of
from orchestrator.stages.context import Context
from services.drift.alerts import alerts_at, signs_at
from services.drift.series import points_of
from storage import queries
from storage.rows import AlertRow
from storage.session import Store

_NO_SERVICES = Services("", "", "", "", "", {})  # nothing is asked


def replay_alerts(home: Home, store: Store, name: str) -> list[AlertRow]:
    """The alerts of all iterations whose health was checked, in their order. Raises `NotThere`."""
    with store.read() as session:
        config = queries.runs.config_of_run(session, name)
        done = [row for row in queries.ledger.stages_of(session, name) if row.status == "done"]
        points = [point for t in sorted({row.iteration for row in done}) for point in points_of(session, name, t)]
    heeded = config.guard.model_copy(update={"actions": dict.fromkeys(get_args(Signal), "warn")})
    run = Run(name, home, store, _NO_SERVICES, config.model_copy(update={"guard": heeded}))
    alerts = list[AlertRow]()
    for t in sorted(row.iteration for row in done if row.stage == "check_health"):
        with store.read() as session:
            signs = signs_at(session, name, t, points)
        _, alarms = alarms_of(Context(run, t, "check_health", lambda *_: None), signs)
        with store.read() as session:
            alerts += alerts_at(session, name, t, alarms, points)
    return alerts


def silent(config: RunConfig, alerts: Iterable[AlertRow]) -> list[str]:
    """The guard's signals and the run's drift rules, by their figures, that have no alert."""
    raised_by = {alert.series if alert.rule in ("sudden", "slow") else alert.rule for alert in alerts}
    rules = {name: figures_of_rule(name) for name in config.alerts.figures}
    signals = {str(signal): (signal,) for signal in get_args(Signal)}
    return [name for name, own in {**signals, **rules}.items() if raised_by.isdisjoint(own)]
