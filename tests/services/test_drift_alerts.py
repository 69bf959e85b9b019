"""The series of a small run, compared with values by hand, and the alerts that are raised from series."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from api_examples import QUESTIONS, RUN, fill
from scipy.stats import norm
from sqlalchemy import update
from sqlalchemy.orm import Session

from core.settings.config import CoEvolution
from core.settings.parsing import parse_config
from core.statistics.audits import Stratum, stratified_share
from core.statistics.changes import Point, SeriesKey, findings
from core.statistics.estimates import Estimate, mean_share, share
from core.statistics.guard import Alarm
from core.types import Checkpoint, LabelledQuestion, OracleLabel, PseudoLabel, Question, question_id
from services.drift.alerts import alert_id, raise_alerts, record
from services.drift.series import points_of, refresh, refresh_labels
from storage import queries
from storage.errors import NotThere
from storage.models import Runs
from storage.rows import AlertRow, ClusterRow, SampleRow, SeriesPoint
from storage.session import Store


def points(store: Store, iteration: int = 1) -> dict[tuple[str, str, str], SeriesPoint]:
    with store.read() as session:
        return {(point.name, point.over, point.oracle): point for point in points_of(session, RUN, iteration)}


def figure(point: SeriesPoint) -> Estimate:
    return Estimate(point.value, point.lo, point.hi, point.n)


def test_the_series_of_an_iteration_by_hand(store: Store) -> None:
    fill(store)
    by_key = points(store)
    assert figure(by_key["label_accuracy", "kept", "exact"]) == share(1, 2)
    assert figure(by_key["label_accuracy", "all", "exact"]) == share(2, 4)
    assert figure(by_key["ill_posed_share", "kept", "exact"]) == share(0, 2)
    assert figure(by_key["ill_posed_share", "all", "exact"]) == share(1, 4)
    for name, count in (("kept_share", 2), ("malformed_share", 1), ("duplicate_share", 0)):
        assert figure(by_key[name, "all", ""]) == share(count, len(QUESTIONS))
    for over, p_hats in (("kept", [0.5, 0.75]), ("all", [0.5, 0.75, 1.0, 0.25])):
        expected, point = mean_share(p_hats), by_key["p_hat", over, ""]
        assert (point.value, point.lo, point.hi, point.n) == pytest.approx(
            (expected.value, expected.lo, expected.hi, expected.n)
        )
    length = by_key["response_length", "all", ""]
    assert (length.value, length.lo, length.hi, length.n) == pytest.approx((7, 7, 7, 4))
    assert figure(by_key["held_out", "", ""]) == mean_share([0, 0.25, 0.5, 0.75])
    reward = by_key["pseudo_reward", "", ""]
    assert (reward.value, reward.lo, reward.n) == (0.5, None, 1)
    assert ("kl", "", "") not in by_key  # the step's KL is not a number
    cluster = by_key["largest_cluster_share", "all", ""]  # one question was compared
    assert (cluster.value, cluster.lo, cluster.n) == (1.0, None, 1)


def test_a_run_that_trains_on_its_benchmark_s_questions_has_no_held_out_accuracy(store: Store) -> None:
    fill(store)
    config = parse_config({"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "srt"}}}, "test")
    with store.write() as session:
        session.execute(update(Runs).where(Runs.name == RUN).values(config=config.model_dump(mode="json")))
    by_key = points(store)
    assert figure(by_key["test_time", "", ""]) == mean_share([0, 0.25, 0.5, 0.75])
    assert ("held_out", "", "") not in by_key
    decline = Alarm("decline", "warn", -0.1, 0.0, None, "it has fallen")
    with store.write() as session:
        alerts = {alert.rule: alert.series for alert in record(session, RUN, 1, [decline])}
    assert alerts["decline"] == "test_time"


def test_the_series_of_votes_and_clusters_by_hand(store: Store) -> None:
    fill(store)
    with store.write() as session:
        rows = [ClusterRow(question_id(RUN, 1, i), RUN, 1, i // 3, 3 if i < 3 else 1) for i in (0, 1, 2, 4)]
        queries.traces.add_clusters(session, rows)
    by_key = points(store)
    # The larger of two classes has 2, 3, 4 and 3 of four votes.
    entropy = (math.log(2) + 2 * (2 * math.log(2) - 0.75 * math.log(3)) + 0) / 4
    assert by_key["vote_entropy", "all", ""].value == pytest.approx(entropy)
    assert by_key["unparsed_share", "all", ""].value == 0.0
    assert by_key["truncated_share", "kept", ""].value == 0.0
    cluster = by_key["largest_cluster_share", "all", ""]
    assert (cluster.value, cluster.lo, cluster.n) == (0.75, None, 4)


def test_a_sample_s_figures_are_weighted_by_the_strata_s_sizes(store: Store) -> None:
    """There are four strata of one question, and two were drawn; the verdict on a question that was not drawn does not
    count."""
    fill(store)
    with store.write() as session:
        for position, (index, stratum) in enumerate([(0, "kept 0.4-0.6"), (2, "not kept 0.8-1.0")]):
            queries.audits.add_samples(
                session, [SampleRow(question_id(RUN, 1, index), "judge", RUN, 1, stratum, position)]
            )
        verdicts = [(0, "right"), (2, "ill_posed"), (4, "right")]
        queries.questions.add_oracle_labels(
            session, [OracleLabel(question_id(RUN, 1, i), "judge", v, None) for i, v in verdicts]
        )
    by_key = points(store)
    with store.read() as session:
        strata = queries.audits.named_strata_of(session, RUN, 1, "judge")
    assert sorted((s.size, s.n, s.right) for s in strata.values()) == [(1, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    ill_posed = [Stratum(s.size, s.n, int(name == "not kept 0.8-1.0")) for name, s in strata.items()]
    assert figure(by_key["label_accuracy", "all", "judge"]) == stratified_share([*strata.values()])
    assert figure(by_key["ill_posed_share", "all", "judge"]) == stratified_share(ill_posed)
    assert figure(by_key["ill_posed_share", "all", "exact"]) == share(1, 4)


def test_refreshing_replaces_old_figures_with_new_ones(store: Store) -> None:
    fill(store)
    with store.write() as session:
        refresh(session, RUN, 1)
        before = queries.series.series_of(session, RUN)
        refresh(session, RUN, 1)
        assert queries.series.series_of(session, RUN) == before
        assert before
        queries.questions.add_oracle_labels(session, [OracleLabel(question_id(RUN, 1, 0), "judge", "wrong", None)])
        refresh_labels(session, RUN, 1)
        judged = queries.series.series_of(session, RUN, "label_accuracy", oracle="judge")
        assert [(point.over, point.value, point.n) for point in judged] == [("all", 0.0, 1), ("kept", 0.0, 1)]
        with pytest.raises(NotThere):
            refresh(session, "nobody", 1)


def test_an_iteration_without_an_audit_has_an_estimate_that_an_audit_replaces(store: Store) -> None:
    run = _audited_run(store, [240, 240, None])
    with store.write() as session:
        for t in (1, 2, 3):
            refresh(session, run, t)
        third = [
            point
            for point in queries.series.series_of(session, run, "label_accuracy", over="kept")
            if point.iteration == 3
        ]
        assert [(point.estimated, point.n) for point in third] == [(True, 600)]
        labels = [OracleLabel(question_id(run, 3, i), "exact", "right", None) for i in range(300)]
        queries.questions.add_oracle_labels(session, labels)
        refresh_labels(session, run, 3)
        third = [
            point
            for point in queries.series.series_of(session, run, "label_accuracy", over="kept")
            if point.iteration == 3
        ]
        assert [(point.estimated, point.value, point.n) for point in third] == [(False, 1.0, 300)]


def _audited_run(store: Store, right: list[int | None], n: int = 300) -> str:
    """Create a run whose iterations have n kept questions; `right` has the number of right labels of each iteration, or
    None where there is no audit."""
    label = PseudoLabel("3", 6, 10, 10, 0, 0.6, "all", (("3", 6), ("4", 4)))
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=CoEvolution(iterations=10))
        queries.checkpoints.add_checkpoint(
            session, Checkpoint(f"{RUN}/base/0", RUN, "base", 0, 0, "/m", "aa", None), {}
        )
        for t, count in enumerate(right, 1):
            keys = [question_id(RUN, t, i) for i in range(n)]
            queries.questions.add_questions(
                session, [Question(k, RUN, t, i, "q", "q", None, i) for i, k in enumerate(keys)]
            )
            queries.questions.add_labels(session, [LabelledQuestion(key, "q", label, "kept") for key in keys])
            if count is not None:
                labels = [OracleLabel(k, "exact", "right" if i < count else "wrong", None) for i, k in enumerate(keys)]
                queries.questions.add_oracle_labels(session, labels)
        queries.questions.gather_statistics(session)
    return RUN


def test_a_drop_raises_one_alert_in_its_iteration(store: Store) -> None:
    run = _audited_run(store, [240, 240, 240, 180])
    with store.write() as session:
        for t in (1, 2, 3):
            assert record(session, run, t) == []
        assert record(session, run, 4) == record(session, run, 4)
        [alert] = raise_alerts(session, run, 4)
    assert (alert.rule, alert.series, alert.over, alert.oracle, alert.severity) == (
        *("sudden", "label_accuracy", "kept", "exact"),
        "critical",
    )
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
    run = _audited_run(store, [190, 285, 285, 190])
    with store.write() as session:
        for t in (1, 2, 3):
            record(session, run, t)
        rolled_back = {"action": "roll_back", "back_to": {"solver": f"{run}/base/0"}}
        for t in (2, 3):
            queries.ledger.claim_stage(
                session, run=run, iteration=t, stage="check_health", owner="me", lease_seconds=60
            )
            queries.ledger.finish_stage(
                session, run=run, iteration=t, stage="check_health", owner="me", result=rolled_back
            )
        assert record(session, run, 4) == []


def test_an_audit_that_comes_later_can_raise_an_alert(store: Store) -> None:
    run = _audited_run(store, [240, 240, 240, None])
    with store.write() as session:
        for t in (1, 2, 3, 4):
            assert record(session, run, t) == []  # an estimate is not tested
        labels = [OracleLabel(question_id(run, 4, i), "exact", "wrong", None) for i in range(300)]
        queries.questions.add_oracle_labels(session, labels)
        refresh_labels(session, run, 4)
        [alert] = raise_alerts(session, run, 4)
    assert (alert.series, alert.value) == ("label_accuracy", 0.0)


@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1), (1, 6, 2, 3, 4, 5)])
def test_a_drop_raises_an_alert_in_any_order_of_the_audits(store: Store, order: tuple[int, ...]) -> None:
    run = _audited_run(store, [None] * 6, n=400)
    with store.write() as session:
        raised = [_audit_iteration(session, run, t, 320 if t < 6 else 200, n=400) for t in order]
        alerts = queries.alerts.list_alerts(session)
    assert [(alert.iteration, alert.rule, alert.series, alert.severity) for alert in alerts] == [
        (6, "sudden", "label_accuracy", "critical")
    ]
    # Audits after the alert's get the alert too; one earlier iteration is enough as a reference.
    second = max(order.index(6), 1)
    assert raised == [alerts if i >= second and 6 in (t, *order[:i]) else [] for i, t in enumerate(order)]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_no_iteration_is_compared_with_later_ones(store: Store, order: tuple[int, ...]) -> None:
    """The first iteration is the worst: compared with the later ones it would be a fall of 30 points."""
    run = _audited_run(store, [None] * 3)
    with store.write() as session:
        assert [_audit_iteration(session, run, t, 150 if t == 1 else 240) for t in order] == [[], [], []]


def test_a_late_audit_tests_later_iterations_of_its_own_oracle_only(store: Store) -> None:
    run = _audited_run(store, [None] * 3)
    with store.write() as session:
        _audit_iteration(session, run, 2, 240)
        queries.series.put_series(session, run, [_share(t, "given", count) for t, count in ((2, 240), (3, 150))])
        assert _audit_iteration(session, run, 1, 240) == []  # iteration 3 has no verdicts of this oracle
        [alert] = raise_alerts(session, run, 2)
    assert (alert.iteration, alert.oracle) == (3, "given")


def test_an_iteration_is_not_tested_before_people_have_finished_its_sample(store: Store) -> None:
    """By people's verdicts on all of its sample but one question, the accuracy of iteration 2 has fallen."""
    run = _audited_run(store, [None, None])
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
    run = _audited_run(store, [None] * 3)
    with store.write() as session:
        rolled_back = {"action": "roll_back", "back_to": {"solver": f"{run}/base/0"}}
        queries.ledger.claim_stage(session, run=run, iteration=2, stage="check_health", owner="me", lease_seconds=60)
        queries.ledger.finish_stage(session, run=run, iteration=2, stage="check_health", owner="me", result=rolled_back)
        assert [_audit_iteration(session, run, t, {2: 285}.get(t, 190)) for t in (3, 2, 1)] == [[], [], []]


def test_simulated_stable_runs_that_are_audited_backwards() -> None:
    """How many more false alerts repeated tests raise, with a constant label accuracy and 400 audits an iteration;
    `docs/alerts.md` has the figures. Iteration t is tested with every audit from t down to 1."""
    rng, key, settings = np.random.default_rng(30), SeriesKey("label_accuracy", "kept", "human"), CoEvolution().alerts
    alarmed = {"forwards": 0, "backwards": 0}
    for p in np.linspace(0.5, 0.9, 1_000):
        shares = [share(int(right), 400) for right in rng.binomial(400, p, 10)]
        points = [
            Point(t, estimate.value, estimate.lo, estimate.hi, estimate.n) for t, estimate in enumerate(shares, 1)
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


def _share(iteration: int, oracle: str, right: int) -> SeriesPoint:
    estimate = share(right, 300)
    return SeriesPoint(
        iteration, "label_accuracy", "kept", oracle, estimate.value, estimate.lo, estimate.hi, estimate.n
    )


@pytest.mark.parametrize(("action", "severity"), [("warn", "warning"), ("roll_back", "critical"), ("stop", "critical")])
def test_the_guard_s_alarms_are_stored_as_alerts(store: Store, action: str, severity: str) -> None:
    fill(store)
    alarm = Alarm("hacking", action, 0.3, 0.15, 7, "step 7: the KL has risen")
    for _ in range(2):
        with store.write() as session:
            [alert] = record(session, RUN, 1, [alarm])
    assert (alert.rule, alert.series, alert.severity, alert.value, alert.threshold, alert.text) == (
        *("hacking", "kl", severity, 0.3, 0.15),
        alarm.text,
    )


def test_an_alarm_s_infinite_figures_are_stored_as_the_largest_number(store: Store) -> None:
    fill(store)
    alarm = Alarm("no_entropy", "warn", -math.inf, math.inf, 7, "step 7: the entropy is -inf")
    with store.write() as session:
        record(session, RUN, 1, [alarm])
    with store.read() as session:
        [alert] = queries.alerts.list_alerts(session, run=RUN)
    assert (alert.value, alert.threshold) == (-sys.float_info.max, sys.float_info.max)
    assert alert.text == f"{alarm.text}; the value overflowed, and 1.8e+308 stands for infinity"
