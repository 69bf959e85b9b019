"""Computes a run's series, the figures of its iterations, from the store. `docs/alerts.md` says what each of them is.

Intervals are 95% and come from `core.statistics.estimates`: those of shares are over audits, questions or items, at the
effective n if a sample is weighted to the whole, and those of other means are Student's over questions, because the
votes of one question are not independent. Two kinds of figures have no interval: the largest cluster's share, which is
a maximum, and means over training steps, which are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from sqlalchemy.orm import Session

from core.figures import DISAGREEING_WRONG, FIGURES, HELD_OUT, OVERCONFIDENCE, TEST_TIME
from core.grading.answers import answer_key
from core.settings.config import RunConfig
from core.statistics.accuracy import Accuracy
from core.statistics.audits import Stratum, stratified_share
from core.statistics.estimates import Estimate, Sums, mean, mean_share, share
from core.types import Stage
from services.drift.training_labels import training_label_points
from services.drift.world_figures import asked_points, solved_points
from services.oracles.accuracy import SLICES, estimated, measured, measured_in, overconfidence
from storage import queries
from storage.rows import Over, SeriesPoint

# What oracles say of the pseudo-labels.
OF_LABELS = frozenset({"label_accuracy", "ill_posed_share", OVERCONFIDENCE, DISAGREEING_WRONG})
# Slice -> whether its questions were kept.
_SLICES: tuple[tuple[Over, tuple[bool, ...]], ...] = (("kept", (True,)), ("all", (True, False)))


def refresh(session: Session, run: str, iteration: int) -> None:
    """Compute all series of an iteration, and replace the stored ones. Raises `NotThere`."""
    queries.series.put_series(session, run, points_of(session, run, iteration))
    refresh_estimates(session, run)


def refresh_after(session: Session, run: str, iteration: int, stage: Stage) -> None:
    """Compute the series whose rows a stage completes, and replace the stored ones. To be called in the transaction of
    the stage's last write, so that a figure can be seen as soon as it exists. Raises `NotThere`."""
    config = queries.runs.config_of_run(session, run)
    if stage == "label_questions" and config.gates:  # which questions are kept is known after `admit_questions`
        return
    points = [point for compute in _AFTER.get(stage, ()) for point in compute(session, run, iteration, config)]
    queries.series.put_series(session, run, points)
    if stage in ("label_questions", "admit_questions"):  # until its audit, or for ever if it gets none
        refresh_estimates(session, run)


def refresh_labels(session: Session, run: str, iteration: int) -> None:
    """Refresh only the figures of the oracles' labels of an iteration. Call it whenever labels were added, in the same
    transaction or after it."""
    queries.series.put_series(session, run, label_points(session, run, iteration))


def refresh_estimates(session: Session, run: str) -> None:
    """Estimate label accuracy where an oracle has not audited, from p_hat and the iterations that it has audited."""
    queries.series.put_series(session, run, estimated_points(session, run))


def figures_of_labels(session: Session, run: str, iteration: int, oracle: str) -> dict[tuple[str, Over], Estimate]:
    """(series, slice) -> what an oracle's labels of an iteration say, as it was stored when they were."""
    return {
        (point.name, point.over): point.estimate
        for point in queries.series.series_of(session, run, oracle=oracle)
        if point.iteration == iteration and point.name in OF_LABELS and not point.estimated and point.estimate
    }


def estimated_points(session: Session, run: str) -> list[SeriesPoint]:
    """The estimates of label accuracy, for each oracle that has not audited all iterations with votes."""
    voted, audited = queries.series.voted_iterations(session, run), queries.audits.oracles_of(session, run)
    incomplete = [oracle for oracle, iterations in audited.items() if voted - {*iterations}]
    measurements = measured(session, run) if incomplete else []
    return [
        SeriesPoint.of(row.figure, row.iteration, "label_accuracy", over, oracle, estimated=True)
        for oracle in incomplete
        for over in SLICES
        for row in estimated(session, run, oracle, over, measurements)[0]
    ]


def points_of(session: Session, run: str, iteration: int) -> list[SeriesPoint]:
    """The points of an iteration, for every series for which the store has data. Raises `NotThere`."""
    config = queries.runs.config_of_run(session, run)
    all_of_them = dict.fromkeys(compute for of_stage in _AFTER.values() for compute in of_stage)
    return [point for compute in all_of_them for point in compute(session, run, iteration, config)]


def label_points(session: Session, run: str, iteration: int, _config: RunConfig | None = None) -> Iterator[SeriesPoint]:
    """The points of each oracle for an iteration: label accuracy and how far mean p_hat is above it, the share of
    ill-posed questions and, unless the audit is of a sample, what is known of rollouts that disagree with the labels.
    """
    for oracle in queries.series.oracles_at(session, run, iteration):
        for accuracy in measured_in(session, run, iteration, oracle):
            yield SeriesPoint.of(accuracy.figure, iteration, "label_accuracy", accuracy.over, oracle)
            if (gap := overconfidence(session, run, accuracy)) is not None:
                yield SeriesPoint.of(gap, iteration, OVERCONFIDENCE, accuracy.over, oracle)
        for over, figure in ill_posed_in(session, run, iteration, oracle).items():
            yield SeriesPoint.of(figure, iteration, "ill_posed_share", over, oracle)
        if not queries.audits.sample_progress(session, run, iteration, oracle)[0]:
            for over, figure in disagreeing_wrong(session, run, iteration, oracle).items():
                yield SeriesPoint.of(figure, iteration, DISAGREEING_WRONG, over, oracle)


def disagreeing_wrong(session: Session, run: str, iteration: int, oracle: str) -> dict[Over, Estimate]:
    """The mean share of a question's rollouts that are wrong, of those that disagree with its pseudo-label. TTPO (arXiv
    2608.27448) says that they are mostly wrong even where the label is wrong too.

    Over the questions that have such rollouts and whose true answer the oracle knows. A rollout without an answer is
    wrong. Answers are compared with the truth by their keys (`answer_key`), without a grader.
    """
    shares: dict[bool, list[float]] = {True: [], False: []}
    for is_kept, classes, m, truth in queries.series.disagreeing(session, run, iteration, oracle):
        (_, agreeing), *others = classes
        key = None if truth is None else answer_key(truth)  # None: the label is right, so no other answer is
        right = sum(votes for answer, votes in others if answer_key(answer) == key)
        shares[is_kept].append(1 - right / (m - agreeing))
    figures = {over: mean_share([x for kept in kept_values for x in shares[kept]]) for over, kept_values in _SLICES}
    return {over: figure for over, figure in figures.items() if figure is not None}


def ill_posed_in(session: Session, run: str, iteration: int, oracle: str) -> dict[Over, Estimate]:
    """The share of audited questions that the oracle calls ill-posed, over the kept questions and over all questions.

    As for label accuracy in `measured_in`, a sample is weighted to the whole. A slice without an audit is left out.
    """
    sampled = queries.audits.sample_progress(session, run, iteration, oracle)[0] > 0
    counts = queries.series.ill_posed_by_stratum(session, run, iteration, oracle)
    figures: dict[Over, Estimate] = {}
    for over, audited in queries.audits.strata_of(session, run, iteration, oracle, unanswered=True).items():
        # The field `right` counts the questions that the oracle calls ill-posed.
        strata = [Stratum(stratum.size, stratum.n, counts[name]) for name, stratum in audited.items()]
        n, ill_posed = sum(stratum.n for stratum in strata), sum(stratum.right for stratum in strata)
        figure = stratified_share(strata) if sampled else share(ill_posed, n)
        if figure is not None:
            figures[over] = figure
    return figures


def _vote_points(session: Session, run: str, iteration: int, _config: RunConfig) -> Iterator[SeriesPoint]:
    labels = queries.series.label_sums(session, run, iteration)
    votes = queries.series.vote_sums(session, run, iteration)
    entropies: dict[bool, Sums] = {}
    for kept, classes in queries.series.vote_classes(session, run, iteration):
        total = sum(classes)
        entropy = -sum(count / total * math.log(count / total) for count in classes if count)
        entropies[kept] = entropies.get(kept, Sums(0, 0.0, 0.0)) + Sums(1, entropy, entropy * entropy)
    shares = {"p_hat": labels["p_hat"], "unparsed_share": labels["unparsed"], "split_share": labels["split"]}
    shares["truncated_share"] = votes["truncated"]
    means = {"vote_entropy": entropies, "response_length": votes["tokens"]}
    for over, kept_values in _SLICES:
        for name, by_kept in shares.items():
            figure = mean_share(_sum_of(by_kept, kept_values))
            if figure is not None:
                yield SeriesPoint.of(figure, iteration, name, over)
        for name, by_kept in means.items():
            sums = _sum_of(by_kept, kept_values)
            figure = mean(sums)
            if figure is not None:
                yield SeriesPoint.of(figure, iteration, name, over)
            elif sums.n == 1:  # a single value has no interval
                yield SeriesPoint(iteration, name, over, "", sums.total, None, None, 1)


def _sum_of(by_kept: Mapping[bool, Sums], kept_values: Sequence[bool]) -> Sums:
    return sum((by_kept[kept] for kept in kept_values if kept in by_kept), start=Sums(0, 0.0, 0.0))


def _candidate_points(session: Session, run: str, iteration: int, _config: RunConfig) -> Iterator[SeriesPoint]:
    stats = queries.figures.filter_stats_of(session, run).get(iteration)
    if stats is not None:
        counts = {"duplicate_share": stats.duplicate, "malformed_share": stats.malformed}
        if stats.mean_p_hat is not None or stats.kept == 0:  # prompts without a vote are all kept, which says nothing
            counts["kept_share"] = stats.kept
        for name, count in counts.items():
            figure = share(count, stats.candidates)
            if figure is not None:
                yield SeriesPoint.of(figure, iteration, name, "all")
    clustered = queries.series.cluster_sizes(session, run, iteration)
    if clustered is not None:
        largest, n = clustered
        yield SeriesPoint(iteration, "largest_cluster_share", "all", "", largest / n, None, None, n)


def _training_points(session: Session, run: str, iteration: int, config: RunConfig) -> Iterator[SeriesPoint]:
    """The means of what the trainers report over the last steps."""
    for figure in FIGURES.values():
        if figure.steps is None or figure.interval:
            continue
        role, metric = figure.steps
        steps = queries.figures.train_metrics_of(session, run, iteration=iteration, role=role, name=metric)
        values = [step.value for step in steps[-config.guard.window :]]
        last = [value for value in values if value is not None and math.isfinite(value)]
        if last:
            yield SeriesPoint(iteration, figure.name, "", "", fmean(last), None, None, len(last))


def _evaluation_points(session: Session, run: str, iteration: int, config: RunConfig) -> Iterator[SeriesPoint]:
    accuracy = accuracies(session, run, config.evaluation.benchmark).get(iteration)
    if accuracy is not None:
        yield SeriesPoint.of(accuracy.pass_at_1, iteration, accuracy_name(config))


def accuracies(session: Session, run: str, benchmark: str) -> dict[int, Accuracy]:
    """Iteration -> results of its Solver on a benchmark, if there are any. Iteration 0 is the base model."""
    solvers = {row.id: row.iteration for row in queries.checkpoints.solvers_of(session, run)}
    return {
        solvers[row.checkpoint]: accuracy
        for row in queries.evaluations.evaluation_sums(session, run)
        if row.benchmark == benchmark and row.checkpoint in solvers
        if (accuracy := row.accuracy)
    }


def accuracy_name(config: RunConfig) -> str:
    """The name of the series with the Solver's pass@1 on the benchmark."""
    return TEST_TIME if config.test_time else HELD_OUT


# Stage -> the functions that compute the figures whose rows it completes.
_Compute = Callable[[Session, str, int, RunConfig], Iterable[SeriesPoint]]
_AFTER: dict[Stage, tuple[_Compute, ...]] = {
    "audit_labels": (label_points,),
    "label_questions": (_vote_points, _candidate_points, asked_points),
    "admit_questions": (_vote_points, _candidate_points, asked_points),
    "generate_questions": (_candidate_points,),
    "read_prompts": (_candidate_points, asked_points),
    "train_challenger": (_training_points, training_label_points),
    "train_solver": (_training_points, training_label_points),
    "evaluate": (_evaluation_points, solved_points),
}
