"""Computes a run's series, the figures of its iterations, from the store. `docs/alerts.md` says what each of them is.

Intervals are 95% and come from `core.statistics.estimates`: those of shares are over audits, questions or items, at the
effective n if a sample is weighted to the whole, and those of other means are Student's over questions, because the
votes of one question are not independent. Two kinds of figures have no interval: the largest cluster's share, which is
a maximum, and means over training steps, which are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.statistics.accuracy import Accuracy
from core.statistics.audits import Stratum, stratified_share
from core.statistics.changes import HELD_OUT, TEST_TIME
from core.statistics.estimates import Estimate, Sums, mean, mean_share, share
from core.types import Role, Stage
from services.drift.training_labels import LABEL_METRICS, training_label_points
from services.oracles.accuracy import SLICES, estimated, measured, measured_in
from storage import queries
from storage.rows import Over, SeriesPoint

OF_LABELS = frozenset({"label_accuracy", "ill_posed_share"})  # what oracles say of the pseudo-labels
# Role -> series -> the trainer's metric. A series without a role in its name is the Solver's.
_TRAINING_METRICS: dict[Role, dict[str, str]] = {
    "solver": {
        "policy_entropy": "entropy",
        "kl": "kl",
        "pseudo_reward": "reward_mean",
        **{
            name: name
            for name in (
                "majority_share",
                "positive_labels",
                "negative_labels",
                "right_prompt_share",
                "right_clusters",
                "wrong_clusters",
                "right_entropy",
                "wrong_entropy",
                "sampler_gap",
                "sampler_gap_max",
            )
        },
    },
    "challenger": {
        "challenger_policy_entropy": "entropy",
        "challenger_kl": "kl",
        "challenger_reward": "reward_mean",
    },
}
# Series -> the Solver's metric of each training step that it is made from.
STEP_METRICS = {**_TRAINING_METRICS["solver"], **{name: metrics[0] for name, metrics in LABEL_METRICS.items()}}
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
    points: list[SeriesPoint] = []
    match stage:
        case "train_challenger" | "train_solver":
            points += _training_points(session, run, iteration, config.guard.window)
            points += training_label_points(session, run, iteration)
        case "generate_questions" | "read_prompts":
            points += _candidate_points(session, run, iteration)
        case "label_questions":
            points += [*_vote_points(session, run, iteration), *_candidate_points(session, run, iteration)]
        case "evaluate":
            points += _evaluation_points(session, run, iteration, config)
        case "audit_labels":
            points += label_points(session, run, iteration)
    queries.series.put_series(session, run, points)
    if stage == "label_questions":  # until its audit, or for ever if it gets none
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
        replace(_point(row.iteration, "label_accuracy", over, row.figure, oracle), estimated=True)
        for oracle in incomplete
        for over in SLICES
        for row in estimated(session, run, oracle, over, measurements)[0]
    ]


def points_of(session: Session, run: str, iteration: int) -> list[SeriesPoint]:
    """The points of an iteration, for every series for which the store has data. Raises `NotThere`."""
    config = queries.runs.config_of_run(session, run)
    return [
        *label_points(session, run, iteration),
        *_vote_points(session, run, iteration),
        *_candidate_points(session, run, iteration),
        *_training_points(session, run, iteration, config.guard.window),
        *training_label_points(session, run, iteration),
        *_evaluation_points(session, run, iteration, config),
    ]


def label_points(session: Session, run: str, iteration: int) -> Iterator[SeriesPoint]:
    """The points of each oracle for an iteration: label accuracy and the share of ill-posed questions."""
    for oracle in queries.series.oracles_at(session, run, iteration):
        for accuracy in measured_in(session, run, iteration, oracle):
            yield _point(iteration, "label_accuracy", accuracy.over, accuracy.figure, oracle)
        for over, figure in ill_posed_in(session, run, iteration, oracle).items():
            yield _point(iteration, "ill_posed_share", over, figure, oracle)


def ill_posed_in(session: Session, run: str, iteration: int, oracle: str) -> dict[Over, Estimate]:
    """The share of audited questions that the oracle calls ill-posed, over the kept questions and over all questions.

    As for label accuracy in `measured_in`, a sample is weighted to the whole. A slice without an audit is left out.
    """
    sampled = queries.audits.sample_progress(session, run, iteration, oracle)[0] > 0
    figures = {}
    for over, strata in _ill_posed_strata(session, run, iteration, oracle).items():
        n, ill_posed = sum(stratum.n for stratum in strata), sum(stratum.right for stratum in strata)
        figure = stratified_share(strata) if sampled else share(ill_posed, n)
        if figure is not None:
            figures[over] = figure
    return figures


def _ill_posed_strata(session: Session, run: str, iteration: int, oracle: str) -> dict[Over, list[Stratum]]:
    """Strata whose field `right` counts the questions that the oracle calls ill-posed."""
    counts = queries.series.ill_posed_by_stratum(session, run, iteration, oracle)
    return {
        over: [Stratum(stratum.size, stratum.n, counts[name]) for name, stratum in strata.items()]
        for over, strata in queries.audits.strata_of(session, run, iteration, oracle, unanswered=True).items()
    }


def _vote_points(session: Session, run: str, iteration: int) -> Iterator[SeriesPoint]:
    labels, votes = (
        queries.series.label_sums(session, run, iteration),
        queries.series.vote_sums(session, run, iteration),
    )
    shares = {"p_hat": labels["p_hat"], "unparsed_share": labels["unparsed"], "truncated_share": votes["truncated"]}
    means = {"vote_entropy": _entropies(session, run, iteration), "response_length": votes["tokens"]}
    for over, kept_values in _SLICES:
        for name, by_kept in shares.items():
            figure = mean_share(_sum_of(by_kept, kept_values))
            if figure is not None:
                yield _point(iteration, name, over, figure)
        for name, sums in means.items():
            yield from _mean_points(iteration, name, over, _sum_of(sums, kept_values))


def _entropies(session: Session, run: str, iteration: int) -> Mapping[bool, Sums]:
    entropies: dict[bool, Sums] = {}
    for kept, votes in queries.series.vote_classes(session, run, iteration):
        total = sum(votes)
        entropy = -sum(count / total * math.log(count / total) for count in votes if count)
        entropies[kept] = entropies.get(kept, Sums(0, 0.0, 0.0)) + Sums(1, entropy, entropy * entropy)
    return entropies


def _sum_of(by_kept: Mapping[bool, Sums], kept_values: Sequence[bool]) -> Sums:
    return sum((by_kept[kept] for kept in kept_values if kept in by_kept), start=Sums(0, 0.0, 0.0))


def _candidate_points(session: Session, run: str, iteration: int) -> Iterator[SeriesPoint]:
    stats = queries.figures.filter_stats_of(session, run).get(iteration)
    if stats is not None:
        counts = {"duplicate_share": stats.duplicate, "malformed_share": stats.malformed}
        if stats.mean_p_hat is not None or stats.kept == 0:  # prompts without a vote are all kept, which says nothing
            counts["kept_share"] = stats.kept
        for name, count in counts.items():
            figure = share(count, stats.candidates)
            if figure is not None:
                yield _point(iteration, name, "all", figure)
    clustered = queries.series.cluster_sizes(session, run, iteration)
    if clustered is not None:
        largest, n = clustered
        yield SeriesPoint(iteration, "largest_cluster_share", "all", "", largest / n, None, None, n)


def _training_points(session: Session, run: str, iteration: int, window: int) -> Iterator[SeriesPoint]:
    for role, names in _TRAINING_METRICS.items():
        for name, metric in names.items():
            steps = queries.figures.train_metrics_of(session, run, iteration=iteration, role=role, name=metric)
            last = [step.value for step in steps[-window:] if step.value is not None and math.isfinite(step.value)]
            if last:
                yield SeriesPoint(iteration, name, "", "", fmean(last), None, None, len(last))


def _evaluation_points(session: Session, run: str, iteration: int, config: RunConfig) -> Iterator[SeriesPoint]:
    accuracy = accuracies(session, run, config.evaluation.benchmark).get(iteration)
    if accuracy is not None:
        yield _point(iteration, accuracy_name(config), "", accuracy.pass_at_1)


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


def _mean_points(iteration: int, name: str, over: Over, sums: Sums) -> Iterator[SeriesPoint]:
    """The point of a mean, if there is a value. A single value has no interval."""
    figure = mean(sums)
    if figure is not None:
        yield _point(iteration, name, over, figure)
    elif sums.n == 1:
        yield SeriesPoint(iteration, name, over, "", sums.total, None, None, 1)


def _point(iteration: int, name: str, over: Over, estimate: Estimate, oracle: str = "") -> SeriesPoint:
    return SeriesPoint(iteration, name, over, oracle, estimate.value, estimate.lo, estimate.hi, estimate.n)
