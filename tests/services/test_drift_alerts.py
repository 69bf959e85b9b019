"""The alerts that are raised from series, and from the guard's alarms."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from api_examples import RUN, audited_run
from scipy.stats import norm
from sqlalchemy.orm import Session

from core.settings.config import CoEvolution
from core.statistics.changes import Point, SeriesKey, findings
from core.statistics.estimates import share
from core.statistics.guard import Alarm
from core.types import OracleLabel, question_id
from services.drift.alerts import alert_id, raise_alerts, record
from services.drift.series import refresh, refresh_labels
from storage import queries
from storage.rows import AlertRow, SampleRow, SeriesPoint
from storage.session import Store
from tests.synthetic_run import finish


def test_a_drop_raises_one_alert_in_its_iteration(store: Store) -> None:
    run = audited_run(store, [240, 240, 240, 180])
    with store.write() as session:
        for t in (1, 2, 3):
            assert measured(session, run, t) == []
        assert measured(session, run, 4) == measured(session, run, 4)
        [alert] = raise_alerts(session, run, 4)
    assert (alert.rule, alert.severity) == ("sudden", "critical")
    assert (alert.series, alert.over, alert.oracle) == ("label_accuracy", "kept", "exact")
    assert (alert.iteration, alert.value, alert.n, alert.reference) == (4, 0.6, 300, 0.8)
    assert (alert.lo, alert.hi) == (share(180, 300).lo, share(180, 300).hi)
    # The rate is 0.05 * 0.9 (the rule's weight) * 0.9 (without the CUSUM's share) / 10 iterations: z = 2.6458.
    limit = 0.8 - norm.isf(0.05 * 0.9 * 0.9 / 10) * (0.75 * 0.25 * (1 / 300 + 1 / 900)) ** 0.5
    assert alert.threshold == pytest.approx(limit)
    assert alert.id == alert_id(run, 4, "sudden", ("label_accuracy", "kept", "exact"))
    with store.read() as session:
        assert queries.alerts.list_alerts(session) == [alert]


def test_iterations_that_were_rolled_back_are_not_a_reference(store: Store) -> None:
    """Iterations 2 and 3 have a much higher accuracy and were rolled back."""
    run = audited_run(store, [190, 285, 285, 190])
    with store.write() as session:
        for t in (1, 2, 3):
            measured(session, run, t)
        roll_back(session, run, 2)
        roll_back(session, run, 3)
        assert measured(session, run, 4) == []


def test_an_audit_that_comes_later_can_raise_an_alert(store: Store) -> None:
    run = audited_run(store, [240, 240, 240, None])
    with store.write() as session:
        for t in (1, 2, 3, 4):
            assert measured(session, run, t) == []  # an estimate is not tested
        labels = [OracleLabel(question_id(run, 4, i), "exact", "wrong", None) for i in range(300)]
        queries.questions.add_oracle_labels(session, labels)
        refresh_labels(session, run, 4)
        [alert] = raise_alerts(session, run, 4)
    assert (alert.series, alert.value) == ("label_accuracy", 0.0)


@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1), (1, 6, 2, 3, 4, 5)])
def test_a_drop_raises_an_alert_in_any_order_of_the_audits(sqlite: Store, order: tuple[int, ...]) -> None:
    run = audited_run(sqlite, [None] * 6, n=400)
    with sqlite.write() as session:
        raised = [_audit_iteration(session, run, t, 320 if t < 6 else 200, n=400) for t in order]
        alerts = queries.alerts.list_alerts(session)
    [alert] = alerts
    assert (alert.iteration, alert.rule, alert.series, alert.severity) == (6, "sudden", "label_accuracy", "critical")
    # Audits after the alert's get the alert too; one earlier iteration is enough as a reference.
    second = max(order.index(6), 1)
    assert raised == [alerts if i >= second and 6 in (t, *order[:i]) else [] for i, t in enumerate(order)]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_no_iteration_is_compared_with_later_ones(sqlite: Store, order: tuple[int, ...]) -> None:
    """The first iteration is the worst: compared with the later ones it would be a fall of 30 points."""
    run = audited_run(sqlite, [None] * 3)
    with sqlite.write() as session:
        assert [_audit_iteration(session, run, t, 150 if t == 1 else 240) for t in order] == [[], [], []]


def test_a_late_audit_tests_later_iterations_of_its_own_oracle_only(store: Store) -> None:
    run = audited_run(store, [None] * 3)
    with store.write() as session:
        _audit_iteration(session, run, 2, 240)
        queries.series.put_series(session, run, [_share(t, "given", count) for t, count in ((2, 240), (3, 150))])
        assert _audit_iteration(session, run, 1, 240) == []  # iteration 3 has no verdicts of this oracle
        [alert] = raise_alerts(session, run, 2)
    assert (alert.iteration, alert.oracle) == (3, "given")


def test_an_iteration_is_not_tested_before_people_have_finished_its_sample(store: Store) -> None:
    """By people's verdicts on all of its sample but one question, the accuracy of iteration 2 has fallen."""
    run = audited_run(store, [None, None])
    with store.write() as session:
        for t in (1, 2):
            rows = [SampleRow(question_id(run, t, i), "human", run, t, "kept 0.6-0.8", i) for i in range(300)]
            queries.audits.add_samples(session, rows)
        _audit_iteration(session, run, 2, 150, n=299, oracle="human")
        assert _audit_iteration(session, run, 1, 240, oracle="human") == []
        queries.questions.add_oracle_labels(session, [OracleLabel(question_id(run, 2, 299), "human", "wrong", None)])
        refresh_labels(session, run, 2)
        [alert] = raise_alerts(session, run, 1)
    assert (alert.iteration, alert.oracle, alert.n) == (2, "human", 300)


def test_a_later_iteration_is_not_compared_with_one_that_was_rolled_back(store: Store) -> None:
    run = audited_run(store, [None] * 3)
    with store.write() as session:
        roll_back(session, run, 2)
        assert [_audit_iteration(session, run, t, {2: 285}.get(t, 190)) for t in (3, 2, 1)] == [[], [], []]


def test_simulated_stable_runs_that_are_audited_backwards() -> None:
    """How many more false alerts repeated tests raise, with a constant label accuracy and 400 audits an iteration;
    `docs/alerts.md` has the figures. Iteration t is tested with every audit from t down to 1."""
    rng, key, settings = np.random.default_rng(30), SeriesKey("label_accuracy", "kept", "human"), CoEvolution().alerts
    alarmed = {"forwards": 0, "backwards": 0}
    for p in np.linspace(0.5, 0.9, 1_000):
        shares = [share(int(right), 400) for right in rng.binomial(400, p, 10)]
        points = [
            Point(t, estimate.value, estimate.lo, estimate.hi, estimate.n, estimate.interval)
            for t, estimate in enumerate(shares, 1)
        ]
        alarmed["forwards"] += bool(findings({key: points}, settings))
        alarmed["backwards"] += any(findings({key: points[first:]}, settings) for first in range(10))
    print(f"\nstable runs of 1,000 with an alert of label accuracy: {alarmed}")
    assert alarmed["forwards"] <= 50
    assert alarmed["forwards"] < alarmed["backwards"] <= 150


def _audit_iteration(
    session: Session, run: str, t: int, right: int, n: int = 300, oracle: str = "exact"
) -> list[AlertRow]:
    """Audit n labels of an iteration, with this number of right ones, and test the rules; returns the alerts."""
    verdicts = ["right"] * right + ["wrong"] * (n - right)
    labels = [OracleLabel(question_id(run, t, i), oracle, verdict, None) for i, verdict in enumerate(verdicts)]
    queries.questions.add_oracle_labels(session, labels)
    refresh_labels(session, run, t)
    return raise_alerts(session, run, t)


def roll_back(session: Session, run: str, t: int) -> None:
    """Store that an iteration was rolled back."""
    finish(session, run, t, "check_health", {"action": "roll_back", "back_to": {"solver": f"{run}/base/0"}}, 1)


def measured(session: Session, run: str, t: int) -> list[AlertRow]:
    """The alerts of an iteration whose stages have just stored its series."""
    refresh(session, run, t)
    return record(session, run, t)


def _share(iteration: int, oracle: str, right: int) -> SeriesPoint:
    return SeriesPoint.of(share(right, 300), iteration, "label_accuracy", "kept", oracle)


@pytest.mark.parametrize(("action", "severity"), [("warn", "warning"), ("roll_back", "critical"), ("stop", "critical")])
def test_the_guard_s_alarms_are_stored_as_alerts(filled: Store, action: str, severity: str) -> None:
    alarm = Alarm("hacking", action, 0.3, 0.15, 7, "step 7: the KL has risen")
    for _ in range(2):
        with filled.write() as session:
            [alert] = record(session, RUN, 1, [alarm])
    assert (alert.rule, alert.series, alert.severity, alert.text) == ("hacking", "kl", severity, alarm.text)
    assert (alert.value, alert.threshold) == (0.3, 0.15)


def test_an_alarm_s_infinite_figures_are_stored_as_the_largest_number(filled: Store) -> None:
    alarm = Alarm("no_entropy", "warn", -math.inf, math.inf, 7, "step 7: the entropy is -inf")
    with filled.write() as session:
        record(session, RUN, 1, [alarm])
    with filled.read() as session:
        [alert] = queries.alerts.list_alerts(session, run=RUN)
    assert (alert.value, alert.threshold) == (-sys.float_info.max, sys.float_info.max)
    assert "1.8e+308 stands for infinity" in alert.text
