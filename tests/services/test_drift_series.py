"""The series of an iteration, compared with values by hand."""

from __future__ import annotations

import math

import pytest
from api_examples import QUESTIONS, RUN, audited_run
from sqlalchemy import update

from core.figures import FIGURES
from core.settings.parsing import parse_config
from core.statistics.audits import Stratum, stratified_share
from core.statistics.estimates import Estimate, difference, mean, mean_share, pair_share, paired_share_difference, share
from core.statistics.guard import Alarm
from core.types import (
    STAGES,
    BenchmarkItem,
    Evaluated,
    LabelledQuestion,
    OracleLabel,
    OracleVerdict,
    PseudoLabel,
    Question,
    Stage,
    question_id,
)
from services.drift.alerts import record
from services.drift.series import points_of, refresh, refresh_after, refresh_labels
from storage import queries
from storage.errors import NotThere
from storage.models import Runs
from storage.rows import ClusterRow, SampleRow, SeriesPoint
from storage.session import Store


def points(store: Store, iteration: int = 1) -> dict[tuple[str, str, str], SeriesPoint]:
    with store.read() as session:
        return {(point.name, point.over, point.oracle): point for point in points_of(session, RUN, iteration)}


def figure(point: SeriesPoint) -> Estimate:
    return Estimate(point.value, point.lo, point.hi, point.n)


def test_the_series_of_an_iteration_by_hand(filled: Store) -> None:
    by_key = points(filled)
    expected = {
        ("label_accuracy", "kept", "exact"): share(1, 2),
        ("label_accuracy", "all", "exact"): share(2, 4),
        ("ill_posed_share", "kept", "exact"): share(0, 2),
        ("ill_posed_share", "all", "exact"): share(1, 4),
        # p_hat is 0.5, 0.75, 1 and 0.25; the labels are right, wrong, right and of an ill-posed question.
        ("overconfidence", "kept", "exact"): paired_share_difference([1, 0], [0.5, 0.75]),
        ("overconfidence", "all", "exact"): paired_share_difference([1, 0, 1, 0], [0.5, 0.75, 1.0, 0.25]),
        ("disagreeing_wrong_share", "kept", "exact"): mean_share([1.0, 1.0]),
        ("split_share", "kept", ""): share(2, 2),
        ("split_share", "all", ""): share(3, 4),
        # Three of four questions are of the tiny world, with one operation each: two sums and a product.
        ("asked_difficulty", "kept", ""): Estimate(1, 1, 1, 2),
        ("asked_difficulty", "all", ""): Estimate(1, 1, 1, 3),
        ("skeletons", "all", ""): Estimate(2, None, None, 3),
        ("same_skeleton_share", "all", ""): pair_share([2, 1]),
        ("kept_share", "all", ""): share(2, len(QUESTIONS)),
        ("malformed_share", "all", ""): share(1, len(QUESTIONS)),
        ("duplicate_share", "all", ""): share(0, len(QUESTIONS)),
        ("p_hat", "kept", ""): mean_share([0.5, 0.75]),
        ("p_hat", "all", ""): mean_share([0.5, 0.75, 1.0, 0.25]),
        ("response_length", "all", ""): Estimate(7, 7, 7, 4),
        ("held_out", "", ""): mean_share([0, 0.25, 0.5, 0.75]),
        ("pseudo_reward", "", ""): Estimate(0.5, None, None, 1),
        ("majority_share", "", ""): Estimate(0.75, None, None, 1),
        ("largest_cluster_share", "all", ""): Estimate(1.0, None, None, 1),  # one question was compared
    }
    for key, estimate in expected.items():
        point = by_key[key]
        got = (point.value, point.lo, point.hi, point.n)
        assert got == pytest.approx((estimate.value, estimate.lo, estimate.hi, estimate.n)), key
    assert ("kl", "", "") not in by_key  # the step's KL is not a number
    assert ("solved_difficulty", "", "") not in by_key  # it is not stored what the Solver was asked


def test_the_series_of_labels_and_of_right_and_wrong_rollouts_by_hand(filled: Store) -> None:
    """Means over the last three steps that have the figure. Only two have a right rollout. There is no interval."""
    steps = [
        {"positive_labels": 9, "negative_labels": 9, "wrong_entropy": 9},
        {"positive_labels": 2, "negative_labels": 9, "right_entropy": 0.2, "wrong_entropy": 0.5},
        {"positive_labels": 3, "negative_labels": 4, "wrong_entropy": 0.7},
        {"positive_labels": 5, "negative_labels": 0, "right_entropy": 0.4, "wrong_entropy": 0.3},
    ]
    with filled.write() as session:
        for step, metrics in enumerate(steps, 4):
            others = {"right_prompt_share": step / 10, "right_clusters": step, "wrong_clusters": 2 * step}
            others |= {"sampler_gap": step / 100, "sampler_gap_max": step / 20}
            queries.figures.add_train_metrics(
                session, run=RUN, iteration=1, role="solver", step=step, metrics=metrics | others
            )
    by_key = points(filled)
    expected = {"positive_labels": (10 / 3, 3), "negative_labels": (13 / 3, 3)}
    expected |= {"right_prompt_share": (0.6, 3), "right_clusters": (6, 3), "wrong_clusters": (12, 3)}
    expected |= {"right_entropy": (0.3, 2), "wrong_entropy": (0.5, 3)}
    expected |= {"sampler_gap": (0.06, 3), "sampler_gap_max": (0.3, 3)}
    for name, (value, n) in expected.items():
        point = by_key[name, "", ""]
        assert (point.value, point.lo, point.n) == (pytest.approx(value), None, n)
        assert name in FIGURES


def test_a_run_that_trains_on_its_benchmark_s_questions_has_no_held_out_accuracy(filled: Store) -> None:
    config = parse_config({"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "srt"}}}, "test")
    with filled.write() as session:
        session.execute(update(Runs).where(Runs.name == RUN).values(config=config.model_dump(mode="json")))
    by_key = points(filled)
    assert figure(by_key["test_time", "", ""]) == mean_share([0, 0.25, 0.5, 0.75])
    assert ("held_out", "", "") not in by_key
    decline = Alarm("decline", "warn", -0.1, 0.0, None, "it has fallen")
    with filled.write() as session:
        alerts = {alert.rule: alert.series for alert in record(session, RUN, 1, [decline])}
    assert alerts["decline"] == "test_time"


def test_the_series_of_votes_and_clusters_by_hand(filled: Store) -> None:
    with filled.write() as session:
        rows = [ClusterRow(question_id(RUN, 1, i), RUN, 1, i // 3, 3 if i < 3 else 1) for i in (0, 1, 2, 4)]
        queries.traces.add_clusters(session, rows)
    by_key = points(filled)
    # The larger of two classes has 2, 3, 4 and 3 of four votes.
    entropy = (math.log(2) + 2 * (2 * math.log(2) - 0.75 * math.log(3)) + 0) / 4
    assert by_key["vote_entropy", "all", ""].value == pytest.approx(entropy)
    assert by_key["unparsed_share", "all", ""].value == 0.0
    assert by_key["truncated_share", "kept", ""].value == 0.0
    cluster = by_key["largest_cluster_share", "all", ""]
    assert (cluster.value, cluster.lo, cluster.n) == (0.75, None, 4)


def test_a_sample_s_figures_are_weighted_by_the_strata_s_sizes(filled: Store) -> None:
    """There are four strata of one question, and two were drawn; the verdict on a question that was not drawn does not
    count."""
    with filled.write() as session:
        for position, (index, stratum) in enumerate([(0, "kept 0.4-0.6"), (2, "not kept 0.8-1.0")]):
            row = SampleRow(question_id(RUN, 1, index), "judge", RUN, 1, stratum, position)
            queries.audits.add_samples(session, [row])
        verdicts = [(0, "right"), (2, "ill_posed"), (4, "right")]
        labels = [OracleLabel(question_id(RUN, 1, i), "judge", verdict, None) for i, verdict in verdicts]
        queries.questions.add_oracle_labels(session, labels)
    by_key = points(filled)
    with filled.read() as session:
        strata = queries.audits.named_strata_of(session, RUN, 1, "judge")
    assert sorted((s.size, s.n, s.right) for s in strata.values()) == [(1, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    ill_posed = [Stratum(s.size, s.n, int(name == "not kept 0.8-1.0")) for name, s in strata.items()]
    assert figure(by_key["label_accuracy", "all", "judge"]) == stratified_share([*strata.values()])
    assert figure(by_key["ill_posed_share", "all", "judge"]) == stratified_share(ill_posed)
    assert figure(by_key["ill_posed_share", "all", "exact"]) == share(1, 4)
    of_all = mean_share([0.5, 0.75, 1.0, 0.25])
    assert figure(by_key["overconfidence", "all", "judge"]) == difference(of_all, stratified_share([*strata.values()]))
    assert ("disagreeing_wrong_share", "all", "judge") not in by_key


@pytest.mark.parametrize(
    ("classes", "m", "verdict", "truth", "expected"),
    [
        ([("3", 6), ("4", 2)], 10, "right", "3", 1.0),  # two answers and two rollouts without one
        ([("3", 6), ("4", 2)], 10, "wrong", "5", 1.0),
        ([("3", 6), ("4", 2)], 10, "wrong", "4", 0.5),
        ([("3", 5), ("2", 3), ("4.0", 2)], 10, "wrong", "4", 0.6),
        ([("3", 6), ("4", 4)], 10, "wrong", "4", 0.0),
        ([("3", 10)], 10, "wrong", "4", None),  # no rollout disagrees
        ([("3", 6), ("4", 2)], 10, "wrong", None, None),  # the oracle does not know the truth
        ([("3", 6), ("4", 2)], 10, "ill_posed", "4", None),
    ],
)
def test_the_rollouts_that_disagree_with_a_label_and_are_wrong_by_hand(
    store: Store,
    classes: list[tuple[str, int]],
    m: int,
    verdict: OracleVerdict,
    truth: str | None,
    expected: float | None,
) -> None:
    label = PseudoLabel(classes[0][0], classes[0][1], m, sum(n for _, n in classes), 0, 0.5, "all", tuple(classes))
    run = audited_run(store, [None], n=0)
    key = question_id(run, 1, 0)
    with store.write() as session:
        queries.questions.add_questions(session, [Question(key, run, 1, 0, "q", "q", None, 0)])
        queries.questions.add_labels(session, [LabelledQuestion(key, "q", label, "too_easy")])
        queries.questions.add_oracle_labels(session, [OracleLabel(key, "given", verdict, truth)])
    by_key = points(store)
    assert ("disagreeing_wrong_share", "kept", "given") not in by_key
    got = by_key.get(("disagreeing_wrong_share", "all", "given"))
    assert (got and (got.value, got.n)) == (None if expected is None else (pytest.approx(expected), 1))


@pytest.mark.parametrize(("strange", "known"), [(1, True), (3, False)])
def test_the_difficulty_of_a_benchmark_is_that_of_its_questions_that_the_solver_answers_right(
    filled: Store, strange: int, known: bool
) -> None:
    """Three questions of the tiny world, two of which are answered right, and others that no program reads."""
    problems = ["What is 1 + 2?", "What is 1 + 2 + 3 + 4?", "What is 5 - 2 - 1?", *["Which is even?"] * strange]
    items = [BenchmarkItem(f"i{i}", problem, "1", None, None) for i, problem in enumerate(problems)]
    results = [Evaluated(item.id, None, 4, 1, i == 0, i == 1) for i, item in enumerate(items)]
    solver = f"{RUN}/base/0"
    with filled.write() as session:
        queries.evaluations.add_benchmark_items(session, "its sha256", items)
        manifest = {"benchmark": {"sha256": "its sha256"}}
        names = {"model": solver, "checkpoint": solver, "run": RUN, "benchmark": "micro"}
        key = queries.evaluations.begin_evaluation(session, manifest=manifest, **names).id
        queries.evaluations.add_results(session, key, results)
    solved = points(filled, 0).get(("solved_difficulty", "", ""))
    assert (solved and figure(solved)) == (mean([1, 3]) if known else None)


def test_of_questions_that_no_program_reads_nothing_is_said(store: Store) -> None:
    run = audited_run(store, [None], n=3)
    with store.write() as session:
        named = [Question(question_id(run, 1, i), run, 1, i, "What is 1 + 1?", "", None, i) for i in (3, 4)]
        queries.questions.add_questions(session, named)
        queries.questions.add_labels(session, [LabelledQuestion(q.id, q.text, None, "duplicate") for q in named])
    assert not {"asked_difficulty", "skeletons", "same_skeleton_share"} & {name for name, *_ in points(store)}


def test_refreshing_replaces_old_figures_with_new_ones(filled: Store) -> None:
    with filled.write() as session:
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
    run = audited_run(store, [240, 240, None])
    with store.write() as session:
        for t in (1, 2):
            refresh_after(session, run, t, "audit_labels")
        refresh_after(session, run, 3, "label_questions")
        measured = queries.series.series_of(session, run, "label_accuracy", over="kept")
        assert [(point.iteration, point.estimated) for point in measured] == [(1, False), (2, False), (3, True)]
        assert measured[2].n == 600
        refresh(session, run, 3)
        assert queries.series.series_of(session, run, "label_accuracy", over="kept") == measured
        labels = [OracleLabel(question_id(run, 3, i), "exact", "right", None) for i in range(300)]
        queries.questions.add_oracle_labels(session, labels)
        refresh_labels(session, run, 3)
        *_, third = queries.series.series_of(session, run, "label_accuracy", over="kept")
    assert (third.iteration, third.estimated, third.value, third.n) == (3, False, 1.0, 300)


def stored(store: Store, iteration: int) -> list[SeriesPoint]:
    with store.read() as session:
        return [point for point in queries.series.series_of(session, RUN) if point.iteration == iteration]


def stored_after(store: Store, stage: Stage) -> set[str]:
    with store.write() as session:
        refresh_after(session, RUN, 1, stage)
    return {point.name for point in stored(store, 1)}


def test_each_stage_stores_the_series_that_it_completes(filled: Store) -> None:
    with filled.write() as session:
        queries.figures.add_train_metrics(
            session, run=RUN, iteration=1, role="challenger", step=1, metrics={"reward_mean": 0.5}
        )
    assert "challenger_reward" in stored_after(filled, "train_challenger")
    assert not {"p_hat", "held_out", "label_accuracy"} & stored_after(filled, "generate_questions")
    assert {"kept_share", "p_hat", "vote_entropy", "skeletons"} <= stored_after(filled, "label_questions")
    assert "held_out" not in stored_after(filled, "train_solver")
    assert "held_out" in stored_after(filled, "evaluate")
    assert "label_accuracy" not in stored_after(filled, "evaluate")
    assert {"label_accuracy", "overconfidence", "ill_posed_share"} <= stored_after(filled, "audit_labels")


def test_the_stages_together_store_all_series_and_a_second_time_changes_nothing(filled: Store) -> None:
    for _ in range(2):
        for stage in STAGES:
            stored_after(filled, stage)
        with filled.read() as session:
            expected = sorted(points_of(session, RUN, 1), key=str)
        assert sorted(stored(filled, 1), key=str) == expected
