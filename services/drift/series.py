"""A run's series: the figures of an iteration, worked out from the store. `docs/alerts.md` says what each of them is.

Intervals are 95% and made in `core.statistics.estimates`: Wilson's for shares of counts, at the effective n for a
sample that is weighted to the whole; for means the normal one over questions or items, whose votes are not independent.
What has none: the largest cluster's share, which is a maximum, and the means over training steps, which are not
independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.settings.parsing import parse_config
from core.statistics.accuracy import Accuracy, accuracy_of_sums
from core.statistics.audits import Stratum, stratified_share
from core.statistics.changes import HELD_OUT, TEST_TIME
from core.statistics.estimates import Estimate, Sums, mean, mean_share, share
from core.types import Role
from services.drift.training_labels import training_label_points
from services.oracles.accuracy import SLICES, estimated, measured, measured_in
from storage import queries
from storage.rows import Over, SeriesPoint

OF_LABELS = frozenset({"label_accuracy", "ill_posed_share"})  # what oracles say of the pseudo-labels
# Series -> the trainer's metric; what has no role in its name is the Solver's.
_OF_TRAINING: dict[Role, dict[str, str]] = {
    "solver": {"policy_entropy": "entropy", "kl": "kl", "pseudo_reward": "reward_mean"},
    "challenger": {
        "challenger_policy_entropy": "entropy",
        "challenger_kl": "kl",
        "challenger_reward": "reward_mean",
    },
}
_SLICES: tuple[tuple[Over, tuple[bool, ...]], ...] = (("kept", (True,)), ("all", (True, False)))


def refresh(session: Session, run: str, iteration: int) -> None:
    """Work all of an iteration's series out and store them, in place of what was stored. Raises `NotThere`."""
    queries.series.put_series(session, run, points_of(session, run, iteration))
    refresh_estimates(session, run)


def refresh_labels(session: Session, run: str, iteration: int) -> None:
    """The same for what oracles say of one iteration, whenever labels were added: in the transaction that adds them,
    or after it."""
    queries.series.put_series(session, run, label_points(session, run, iteration))


def refresh_estimates(session: Session, run: str) -> None:
    """Label accuracy of the iterations that an oracle has not audited, from p_hat and those that it has."""
    labelled, audited = queries.series.voted_iterations(session, run), queries.audits.oracles_of(session, run)
    lacking = [oracle for oracle, iterations in audited.items() if labelled - {*iterations}]
    known = measured(session, run) if lacking else []
    for oracle in lacking:
        for over in SLICES:
            points, _ = estimated(session, run, oracle, over, known)
            rows = [_point(point.iteration, "label_accuracy", over, point.figure, oracle) for point in points]
            queries.series.put_series(session, run, [replace(row, estimated=True) for row in rows])


def points_of(session: Session, run: str, iteration: int) -> list[SeriesPoint]:
    """An iteration's series as far as they can be told. Raises `NotThere`."""
    config = parse_config(queries.runs.get_run(session, run).config, f"run {run}")
    return [
        *label_points(session, run, iteration),
        *_of_votes(session, run, iteration),
        *_of_candidates(session, run, iteration),
        *_of_training(session, run, iteration, config.guard.window),
        *training_label_points(session, run, iteration),
        *_of_evaluation(session, run, iteration, config),
    ]


def label_points(session: Session, run: str, iteration: int) -> Iterator[SeriesPoint]:
    """What each oracle says of an iteration's pseudo-labels: label accuracy and the share of ill-posed questions."""
    for oracle in queries.series.oracles_at(session, run, iteration):
        for accuracy in measured_in(session, run, iteration, oracle):
            yield _point(iteration, "label_accuracy", accuracy.over, accuracy.figure, oracle)
        for over, figure in ill_posed_in(session, run, iteration, oracle).items():
            yield _point(iteration, "ill_posed_share", over, figure, oracle)


def ill_posed_in(session: Session, run: str, iteration: int, oracle: str) -> dict[Over, Estimate]:
    """The share of the pseudo-labels whose question the oracle calls ill-posed, over the kept ones and over all, as
    `measured_in` has label accuracy: of a sample it is weighted to the whole. A slice with no audit is not in it."""
    sampled = queries.audits.sample_progress(session, run, iteration, oracle)[0] > 0
    figures = {}
    for over, strata in _ill_posed(session, run, iteration, oracle).items():
        n, ill_posed = sum(stratum.n for stratum in strata), sum(stratum.right for stratum in strata)
        figure = stratified_share(strata) if sampled else share(ill_posed, n)
        if figure is not None:
            figures[over] = figure
    return figures


def _ill_posed(session: Session, run: str, iteration: int, oracle: str) -> dict[Over, list[Stratum]]:
    """Strata in which those that the oracle calls ill-posed stand for the right ones."""
    strata = queries.audits.named_strata_of(session, run, iteration, oracle, unanswered=True)
    counts = queries.series.ill_posed_by_stratum(session, run, iteration, oracle)
    named = {name: Stratum(stratum.size, stratum.n, counts[name]) for name, stratum in strata.items()}
    return {
        over: [stratum for name, stratum in named.items() if name.startswith("kept") in wanted]
        for over, wanted in _SLICES
    }


def _of_votes(session: Session, run: str, iteration: int) -> Iterator[SeriesPoint]:
    labels, votes = (
        queries.series.label_sums(session, run, iteration),
        queries.series.vote_sums(session, run, iteration),
    )
    shares = {"p_hat": labels["p_hat"], "unparsed_share": labels["unparsed"], "truncated_share": votes["truncated"]}
    means = {"vote_entropy": _entropies(session, run, iteration), "response_length": votes["tokens"]}
    for over, wanted in _SLICES:
        for name, by_kept in shares.items():
            figure = mean_share(_added(by_kept, wanted))
            if figure is not None:
                yield _point(iteration, name, over, figure)
        for name, sums in means.items():
            yield from _mean(iteration, name, over, _added(sums, wanted))


def _entropies(session: Session, run: str, iteration: int) -> Mapping[bool, Sums]:
    entropies: dict[bool, Sums] = {}
    for kept, votes in queries.series.vote_classes(session, run, iteration):
        total = sum(votes)
        entropy = -sum(count / total * math.log(count / total) for count in votes if count)
        entropies[kept] = entropies.get(kept, Sums(0, 0.0, 0.0)) + Sums(1, entropy, entropy * entropy)
    return entropies


def _added(by_kept: Mapping[bool, Sums], wanted: Sequence[bool]) -> Sums:
    return sum((by_kept[kept] for kept in wanted if kept in by_kept), start=Sums(0, 0.0, 0.0))


def _of_candidates(session: Session, run: str, iteration: int) -> Iterator[SeriesPoint]:
    stats = queries.figures.filter_stats_of(session, run).get(iteration)
    if stats is not None:
        counts = {"kept_share": stats.kept, "duplicate_share": stats.duplicate, "malformed_share": stats.malformed}
        for name, count in counts.items():
            figure = share(count, stats.candidates)
            if figure is not None:
                yield _point(iteration, name, "all", figure)
    clustered = queries.series.cluster_sizes(session, run, iteration)
    if clustered is not None:
        largest, n = clustered
        yield SeriesPoint(iteration, "largest_cluster_share", "all", "", largest / n, None, None, n)


def _of_training(session: Session, run: str, iteration: int, window: int) -> Iterator[SeriesPoint]:
    for role, names in _OF_TRAINING.items():
        for name, metric in names.items():
            steps = queries.figures.train_metrics_of(session, run, iteration=iteration, role=role, name=metric)
            last = [step.value for step in steps[-window:] if step.value is not None and math.isfinite(step.value)]
            if last:
                yield SeriesPoint(iteration, name, "", "", fmean(last), None, None, len(last))


def _of_evaluation(session: Session, run: str, iteration: int, config: RunConfig) -> Iterator[SeriesPoint]:
    accuracy = accuracies(session, run, config.evaluation.benchmark).get(iteration)
    if accuracy is not None:
        yield _point(iteration, accuracy_name(config), "", accuracy.pass_at_1)


def accuracies(session: Session, run: str, benchmark: str) -> dict[int, Accuracy]:
    """Iteration -> how its Solver did on a benchmark; 0 is the base model. One that is not evaluated is not there."""
    solvers = {
        row.id: row.iteration for row in queries.checkpoints.checkpoints_of(session, run) if row.role != "challenger"
    }
    return {
        solvers[row.checkpoint]: accuracy
        for row in queries.figures.evaluation_sums(session, run)
        if row.benchmark == benchmark and row.checkpoint in solvers
        if (accuracy := accuracy_of_sums(row.shares, row.greedy, row.majority))
    }


def accuracy_name(config: RunConfig) -> str:
    """The series of the Solver's pass@1 on the benchmark."""
    return TEST_TIME if config.test_time else HELD_OUT


def _mean(iteration: int, name: str, over: Over, sums: Sums) -> Iterator[SeriesPoint]:
    """One value alone has no interval."""
    figure = mean(sums)
    if figure is not None:
        yield _point(iteration, name, over, figure)
    elif sums.n == 1:
        yield SeriesPoint(iteration, name, over, "", sums.total, None, None, 1)


def _point(iteration: int, name: str, over: Over, estimate: Estimate, oracle: str = "") -> SeriesPoint:
    return SeriesPoint(iteration, name, over, oracle, estimate.value, estimate.lo, estimate.hi, estimate.n)
