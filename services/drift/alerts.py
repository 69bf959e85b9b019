"""Alerts of a run: the guard's signals and the changes that `core.statistics.changes` finds, as rows."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from sqlalchemy.orm import Session

from core.settings.alerts import Alerts
from core.settings.config import RunConfig
from core.settings.parsing import parse_config
from core.statistics.changes import HELD_OUT, TRAINING_LABELS, Finding, Point, SeriesKey, findings
from core.statistics.guard import Alarm, Signal, ends_training
from services.drift.series import OF_LABELS, accuracy_name, points_of, refresh_estimates
from services.oracles import human
from storage import queries
from storage.rows import AlertRow, Over, SeriesPoint

_MOST = 1_000  # alerts of one iteration; there are not so many rules
_LARGEST = sys.float_info.max

# The guard's signals by the series that shows them best.
_SERIES: dict[Signal, tuple[str, Over]] = {
    "hacking": ("kl", ""),
    "one_answer": ("vote_entropy", "all"),
    "no_entropy": ("policy_entropy", ""),
    "wrong_labels": (TRAINING_LABELS, ""),
    "decline": (HELD_OUT, ""),
    "ill_posed": ("ill_posed_share", "all"),
    "repetition": ("duplicate_share", "all"),
}


def record(session: Session, run: str, iteration: int, alarms: Sequence[Alarm] = ()) -> list[AlertRow]:
    """Refresh an iteration's series, and raise what the guard and the rules find in it: the alerts of this iteration.

    What was raised before stays as it is, so that recording twice is recording once. Raises `NotThere`.
    """
    for t in (0, 1) if iteration == 1 else (iteration,):
        queries.series.put_series(session, run, points_of(session, run, t))
    now = queries.tables.database_time(session)
    config = parse_config(queries.runs.get_run(session, run).config, f"run {run}")
    queries.alerts.add_alerts(session, [_of_alarm(run, iteration, alarm, config, now) for alarm in alarms])
    return look(session, run, iteration)


def look(session: Session, run: str, iteration: int) -> list[AlertRow]:
    """Test the measured series of an iteration as they are stored and raise what is found: the iteration's alerts, the
    newest first, then what was found in later ones. Iterations that the run went back from are not compared with, and
    none is with a later one. Raises `NotThere`.

    To be called once a figure is complete, such as after an audit: the false-alarm rate is that of one look an
    iteration, not of one for every label that comes in. An audit may come after those of later iterations: it has
    changed what these are compared with, so their figures by the same oracle are tested again.
    """
    settings = parse_config(queries.runs.get_run(session, run).config, f"run {run}").alerts
    refresh_estimates(session, run)
    # What was estimated is not tested: it follows from p_hat, which has a rule of its own.
    measured = [point for point in queries.series.series_of(session, run) if not point.estimated]
    left = {t for t, _ in queries.ledger.rolled_back(session, run)}
    findings = _findings_at(iteration, measured, left, settings)
    of_labels = [point for point in measured if point.name in OF_LABELS]
    here = _audited(session, run, iteration, of_labels)
    later = [
        finding
        for t in sorted(
            {point.iteration for point in of_labels if point.iteration > iteration and point.oracle in here}
        )
        for finding in _findings_at(t, of_labels, left, settings)
        if finding.series.oracle in here & _audited(session, run, t, of_labels)
    ]
    now = queries.tables.database_time(session)
    queries.alerts.add_alerts(session, [_of_finding(run, finding, now) for finding in [*findings, *later]])
    ids = [alert_id(run, finding.point.iteration, finding.rule, finding.series) for finding in later]
    return [
        *queries.alerts.list_alerts(session, run=run, iteration=iteration, limit=_MOST),
        *(queries.alerts.get_alert(session, finding) for finding in ids),
    ]


def _findings_at(iteration: int, points: Iterable[SeriesPoint], left: set[int], settings: Alerts) -> list[Finding]:
    """What is found in one iteration, against those before it that the run did not go back from."""
    known = [p for p in points if p.iteration == iteration or (p.iteration < iteration and p.iteration not in left)]
    return [finding for finding in _findings(known, settings) if finding.point.iteration == iteration]


def _audited(session: Session, run: str, iteration: int, of_labels: Iterable[SeriesPoint]) -> set[str]:
    """The oracles that have audited an iteration. People who are still at its sample have not: their figures are
    looked at when they are done, not at every label."""
    oracles = {point.oracle for point in of_labels if point.iteration == iteration}
    at_it = human.ORACLE in oracles and not human.is_over(session, run, iteration)
    return oracles - {human.ORACLE} if at_it else oracles


def alert_id(run: str, iteration: int, rule: str, series: SeriesKey) -> str:
    """Natural: the same finding has the same, and it stands in an address as it is."""
    key = "\x1f".join((run, str(iteration), rule, *series))
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _findings(points: Iterable[SeriesPoint], settings: Alerts) -> list[Finding]:
    series: dict[SeriesKey, list[Point]] = {}
    for point in points:
        key = SeriesKey(point.name, point.over, point.oracle)
        series.setdefault(key, []).append(Point(point.iteration, point.value, point.lo, point.hi, point.n))
    return findings(series, settings)


def _of_finding(run: str, finding: Finding, now: datetime) -> AlertRow:
    point = finding.point
    return AlertRow(
        id=alert_id(run, point.iteration, finding.rule, finding.series),
        run=run,
        iteration=point.iteration,
        rule=finding.rule,
        series=finding.series.name,
        over=cast(Over, finding.series.over),
        oracle=finding.series.oracle,
        severity=finding.severity,
        value=point.value,
        lo=point.lo,
        hi=point.hi,
        n=point.n,
        reference=finding.reference,
        threshold=finding.threshold,
        text=finding.text,
        raised_at=now,
    )


def _of_alarm(run: str, iteration: int, alarm: Alarm, config: RunConfig, now: datetime) -> AlertRow:
    """An alarm that only warns is a warning; one that ends, pauses or turns the run back is critical."""
    name, over = _SERIES[alarm.signal]
    name = accuracy_name(config) if name == HELD_OUT else name
    overflowed = math.isinf(alarm.value) or math.isinf(alarm.threshold)
    return AlertRow(
        id=alert_id(run, iteration, alarm.signal, SeriesKey(name, over)),
        run=run,
        iteration=iteration,
        rule=alarm.signal,
        series=name,
        over=over,
        oracle="",
        severity="critical" if ends_training(alarm.action) else "warning",
        value=_finite(alarm.value),
        lo=None,
        hi=None,
        n=None,
        reference=None,
        threshold=_finite(alarm.threshold),
        text=alarm.text + (f"; it overflowed, {_LARGEST:.2g} stands for infinity" if overflowed else ""),
        raised_at=now,
    )


def _finite(value: float) -> float:
    """A KL may overflow, and JSON has no infinity: REST would say null for a number, and no webhook could be sent. The
    largest float keeps the value on its side of the threshold, where None would be a figure that was not measured. NaN
    does not come here: it crosses no threshold."""
    return min(max(value, -_LARGEST), _LARGEST)
