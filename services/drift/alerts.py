"""Alerts of a run. The guard's alarms and the changes that `core.statistics.changes` finds become rows."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from sqlalchemy.orm import Session

from core.figures import ASKED, HELD_OUT, OVERCONFIDENCE, TRAINING_LABELS
from core.settings.config import RunConfig
from core.statistics.alerts import Alerts
from core.statistics.changes import Finding, Point, SeriesKey, described, findings, untested
from core.statistics.guard import Alarm, Sign, Signal, ends_training
from core.statistics.signs import signs_in
from services.drift.series import OF_LABELS, accuracy_name, refresh_estimates
from services.oracles import human
from storage import queries
from storage.rows import AlertRow, Over, SeriesPoint

MOST_ALERTS = 1_000  # of one iteration: more than the rules can raise
_LARGEST = sys.float_info.max

# Signal of the guard -> the series, (name, over), that shows it best.
_SERIES_OF_SIGNAL: dict[Signal, tuple[str, Over]] = {
    "hacking": ("kl", ""),
    "one_answer": ("vote_entropy", "all"),
    "no_entropy": ("policy_entropy", ""),
    "wrong_labels": (TRAINING_LABELS, ""),
    "decline": (HELD_OUT, ""),
    "ill_posed": ("ill_posed_share", "all"),
    "repetition": ("duplicate_share", "all"),
    "overconfidence": (OVERCONFIDENCE, "kept"),
    "out_of_reach": (ASKED, "kept"),
    "unanimity": ("split_share", "all"),
    "monotony": ("same_skeleton_share", "all"),
}


def record(session: Session, run: str, iteration: int, alarms: Sequence[Alarm] = ()) -> list[AlertRow]:
    """Raise alerts for the guard's alarms and for what the rules find in an iteration's stored series; return them.

    Alerts that were raised before stay as they are, so a second call changes nothing. Raises `NotThere`.
    """
    now = queries.tables.database_time(session)
    config = queries.runs.config_of_run(session, run)
    queries.alerts.add_alerts(session, [_alert_of_alarm(run, iteration, alarm, config, now) for alarm in alarms])
    return raise_alerts(session, run, iteration)


def raise_alerts(session: Session, run: str, iteration: int) -> list[AlertRow]:
    """Test the measured series of an iteration as they are stored, and raise alerts for what the rules find.

    Returns the iteration's alerts, the newest first, followed by the new ones of later iterations. An
    iteration is compared only with earlier ones, and not with those from which the run was rolled back. Raises
    `NotThere`.

    Call it once a figure is complete, such as after an audit: the false-alarm rate holds for one test per iteration,
    not for one test per label. An iteration may be audited after later ones. This changes what the later ones are
    compared with, so their figures by the same oracle are tested again.
    """
    settings = queries.runs.config_of_run(session, run).alerts
    refresh_estimates(session, run)
    measured, rolled_back = _measured(session, run), _rolled_back(session, run)
    findings = _findings_in(iteration, measured, rolled_back, settings)
    label_points = [point for point in measured if point.name in OF_LABELS]
    audited_here = _oracles_done(session, run, iteration, label_points)
    later = [
        finding
        for t in sorted(
            {point.iteration for point in label_points if point.iteration > iteration and point.oracle in audited_here}
        )
        for finding in _findings_in(t, label_points, rolled_back, settings)
        if finding.series.oracle in audited_here & _oracles_done(session, run, t, label_points)
    ]
    now = queries.tables.database_time(session)
    queries.alerts.add_alerts(session, [_alert_of_finding(run, finding, now) for finding in [*findings, *later]])
    ids = [alert_id(run, finding.point.iteration, finding.rule, finding.series) for finding in later]
    return [
        *queries.alerts.list_alerts(session, run=run, iteration=iteration, limit=MOST_ALERTS),
        *(queries.alerts.get_alert(session, id_) for id_ in ids),
    ]


def signs_at(session: Session, run: str, iteration: int, points: Sequence[SeriesPoint] | None = None) -> list[Sign]:
    """The guard's signs in an iteration, by the run's series as they are stored or, if they are given, by `points`."""
    settings = queries.runs.config_of_run(session, run).alerts
    measured = _measured(session, run) if points is None else points
    compared = _compared(iteration, measured, _rolled_back(session, run))
    return [*signs_in(iteration, _by_series(compared), settings)]


def alerts_at(
    session: Session, run: str, iteration: int, alarms: Sequence[Alarm], points: Sequence[SeriesPoint]
) -> list[AlertRow]:
    """The alerts of the guard's alarms and of what the rules find in an iteration of these series. None is raised."""
    now = queries.tables.database_time(session)
    config = queries.runs.config_of_run(session, run)
    findings = _findings_in(iteration, points, _rolled_back(session, run), config.alerts)
    return [
        *(_alert_of_alarm(run, iteration, alarm, config, now) for alarm in alarms),
        *(_alert_of_finding(run, finding, now) for finding in findings),
    ]


def untested_in(session: Session, run: str, iteration: int) -> str | None:
    """A sentence that names the measured series which the rules do not test in an iteration, because they rest on too
    few items; None if there are none. The guard's `decline` tests the accuracy on a benchmark of any size."""
    settings = queries.runs.config_of_run(session, run).alerts
    measured = _compared(iteration, _measured(session, run), _rolled_back(session, run))
    few = untested(_by_series(measured), iteration, settings)
    if not few:
        return None
    names = ", ".join(f"{described(key)} (n = {n:,})" for key, n in sorted(few.items()))
    return f"not tested for drift, because alerts.min_n asks for {settings.min_n:,} items: {names}"


def _measured(session: Session, run: str) -> list[SeriesPoint]:
    """The stored points without the estimates, which are not tested: they follow from p_hat, which has a rule."""
    return [point for point in queries.series.series_of(session, run) if not point.estimated]


def _rolled_back(session: Session, run: str) -> set[int]:
    return {t for t, _ in queries.ledger.rolled_back(session, run)}


def _findings_in(
    iteration: int, points: Iterable[SeriesPoint], rolled_back: set[int], settings: Alerts
) -> list[Finding]:
    """The findings in one iteration, compared with the earlier iterations from which the run was not rolled back."""
    series = _by_series(_compared(iteration, points, rolled_back))
    return [finding for finding in findings(series, settings) if finding.point.iteration == iteration]


def _compared(iteration: int, points: Iterable[SeriesPoint], rolled_back: set[int]) -> list[SeriesPoint]:
    """The points of an iteration and of those that it is compared with."""
    return [
        point
        for point in points
        if point.iteration == iteration or (point.iteration < iteration and point.iteration not in rolled_back)
    ]


def _oracles_done(session: Session, run: str, iteration: int, label_points: Iterable[SeriesPoint]) -> set[str]:
    """The oracles whose audit of an iteration is complete. `human` is left out until its sample is over: its figures
    are tested once then, not at every label."""
    oracles = {point.oracle for point in label_points if point.iteration == iteration}
    unfinished = human.ORACLE in oracles and not human.is_over(session, run, iteration)
    return oracles - {human.ORACLE} if unfinished else oracles


def alert_id(run: str, iteration: int, rule: str, series: SeriesKey) -> str:
    """The id of an alert. The same finding always has the same id, and the id can be part of a URL as it is."""
    key = "\x1f".join((run, str(iteration), rule, *series))
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _by_series(points: Iterable[SeriesPoint]) -> dict[SeriesKey, list[Point]]:
    series: dict[SeriesKey, list[Point]] = {}
    for point in points:
        key = SeriesKey(point.name, point.over, point.oracle)
        stored = Point(point.iteration, point.value, point.lo, point.hi, point.n, point.interval)
        series.setdefault(key, []).append(stored)
    return series


def _alert_of_finding(run: str, finding: Finding, now: datetime) -> AlertRow:
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


def _alert_of_alarm(run: str, iteration: int, alarm: Alarm, config: RunConfig, now: datetime) -> AlertRow:
    """An alarm that only warns is a warning. One that stops, pauses or rolls back the run is critical."""
    name, over = _SERIES_OF_SIGNAL[alarm.signal]
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
        text=alarm.text + (f"; the value overflowed, and {_LARGEST:.2g} stands for infinity" if overflowed else ""),
        raised_at=now,
    )


def _finite(value: float) -> float:
    """Replace infinity, which a KL may reach, by the largest float.

    JSON has no infinity: REST would return null for a number, and a webhook could not be sent. The largest float stays
    on the same side of the threshold, while None would say that the figure was not measured. NaN does not occur here,
    because it crosses no threshold.
    """
    return min(max(value, -_LARGEST), _LARGEST)
