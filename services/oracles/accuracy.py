"""The results of a run's audits: measured and estimated label accuracy, and how far those who graded agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal, TypeVar

from sqlalchemy.orm import Session

from core.statistics.audits import stratified_share
from core.statistics.calibration import Check, calibration_check, estimate_accuracy
from core.statistics.estimates import Estimate, Sums, difference, mean_share, share, stretched
from core.statistics.kappa import VerdictPair, kappa
from storage import queries
from storage.rows import Slice

SLICES: tuple[Slice, ...] = ("kept", "all")
_MOST_RESULTS = 500  # of one run each
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Label accuracy of one iteration, by one oracle, over the kept questions or over all."""

    iteration: int
    oracle: str
    over: Slice
    figure: Estimate  # n is the number of audits; for an estimate, of audits in other iterations
    population: int  # the number of pseudo-labels that it stands for
    frame: Literal["all", "sample"] | None  # what the oracle was asked about; None: estimated, not measured


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two oracles, or two annotators, agree on the questions that both have graded. `kappa` may be None, as
    `core.statistics.audits.kappa` explains."""

    first: str
    second: str
    kappa: Estimate | None


def measured(session: Session, run: str) -> list[Accuracy]:
    """Measured label accuracy by oracle and iteration.

    If the oracle has a sample, the figure is weighted to the whole set (`core.statistics.audits.stratified_share`). If
    it was asked about everything, the figure is the plain share of what it has graded so far.
    """
    return [
        accuracy
        for oracle, iterations in queries.audits.oracles_of(session, run).items()
        for iteration in iterations
        for accuracy in measured_in(session, run, iteration, oracle)
    ]


def measured_in(session: Session, run: str, iteration: int, oracle: str) -> list[Accuracy]:
    """Measured label accuracy of one iteration by one oracle. Slices without an audit are left out."""
    sampled = queries.audits.sample_progress(session, run, iteration, oracle)[0] > 0
    accuracies = []
    for over, named in queries.audits.strata_of(session, run, iteration, oracle).items():
        strata = [*named.values()]
        n, right = sum(stratum.n for stratum in strata), sum(stratum.right for stratum in strata)
        figure = stratified_share(strata) if sampled else share(right, n)
        if figure is not None:
            size = sum(stratum.size for stratum in strata)
            accuracies.append(Accuracy(iteration, oracle, over, figure, size, "sample" if sampled else "all"))
    return accuracies


def overconfidence(session: Session, run: str, accuracy: Accuracy) -> Estimate | None:
    """How far mean p_hat is above a measured label accuracy, over the same questions; below 0 if labels are right more
    often than their votes agree. Its interval is that of a paired difference.

    If the audit is of a sample, mean p_hat is that of all questions, and the interval is made from both intervals:
    nearly all of the error is that of drawing the sample. In simulations (`tests/core/test_coverage.py`) both contain
    the truth in 93 to 98% of cases.
    """
    key, kept_only = accuracy.iteration, accuracy.over == "kept"
    if accuracy.frame == "sample":
        p_hats = queries.audits.p_hats_of(session, run, iteration=key, kept_only=kept_only)[key]
        of_all = mean_share(_sums((p_hat, count) for p_hat, count in p_hats.items()))
        return of_all and difference(of_all, accuracy.figure)
    cells = queries.audits.audited_cells(session, run, accuracy.oracle, iteration=key, kept_only=kept_only)
    halves = [
        ((cell.p_hat + wrong) / 2, n) for cell in cells for wrong, n in ((0, cell.right), (1, cell.n - cell.right))
    ]
    return stretched(mean_share(_sums(halves)))


def _sums(counted: Iterable[tuple[float, int]]) -> Sums:
    """The sums of values, each of which comes with the number of questions that have it."""
    values = [*counted]
    total, squares = (math.fsum(n * value**power for value, n in values) for power in (1, 2))
    return Sums(sum(n for _, n in values), total, squares)


def estimated(
    session: Session, run: str, oracle: str, over: Slice, known: list[Accuracy]
) -> tuple[list[Accuracy], Check | None]:
    """(estimates, check): label accuracy estimated from p_hat (`core.statistics.calibration`) in the iterations without
    an audit of the oracle, and how good such estimates are in the audited iterations.

    `known` is the result of `measured`.
    """
    cells = queries.audits.audited_cells(session, run, oracle, kept_only=over == "kept")
    populations = queries.audits.p_hats_of(session, run, kept_only=over == "kept")
    figures = {
        accuracy.iteration: accuracy.figure for accuracy in known if (accuracy.oracle, accuracy.over) == (oracle, over)
    }
    cells = [cell for cell in cells if cell.iteration in figures]
    estimates = []
    for iteration, population in populations.items():
        if iteration not in figures and (figure := estimate_accuracy(cells, population)) is not None:
            estimates.append(Accuracy(iteration, oracle, over, figure, sum(population.values()), None))
    return estimates, calibration_check(cells, populations, figures)


def between_oracles(session: Session, run: str) -> list[Agreement]:
    """The agreement of every two oracles that have graded a question in common."""
    oracles = sorted(queries.audits.oracles_of(session, run))
    pairs = {(a, b): queries.audits.agreement(session, run, a, b) for a, b in combinations(oracles, 2)}
    return _agreements({names: counts for names, counts in pairs.items() if counts})


def between_annotators(session: Session, run: str) -> list[Agreement]:
    """The agreement of every two annotators who have annotated a question in common."""
    return _agreements(queries.audits.annotator_agreement(session, run))


@dataclass(frozen=True, slots=True)
class Audits:
    """All results of a run's audits."""

    measured: list[Accuracy]
    estimated: list[Accuracy]
    checks: list[tuple[str, Slice, Check]]  # of the estimates, by oracle
    oracles: list[Agreement]
    annotators: list[Agreement]


class _Newest(dict[Hashable, Any]):
    """The newest results, by what they were computed from. They are read again and again, mostly of runs that have
    ended; to compute one reads every label of the run, and fits thousands of curves."""

    def get_or(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        if (known := self.get(key)) is not None:
            result: Result = known
            return result
        self[key] = result = compute()
        while len(self) > _MOST_RESULTS:
            self.pop(next(iter([*self])), None)
        return result


_newest = _Newest()


def measured_so_far(session: Session, run: str) -> list[Accuracy]:
    """`measured`, for a session that has written nothing."""
    return _newest.get_or(("measured", *queries.audits.version(session, run)), lambda: measured(session, run))


def audits_of(session: Session, run: str) -> Audits:
    """The results of all oracles in all iterations, for a session that has written nothing."""
    return _newest.get_or(("audits", *queries.audits.version(session, run)), lambda: _audits(session, run))


def _audits(session: Session, run: str) -> Audits:
    known = measured(session, run)
    estimates: list[Accuracy] = []
    checks: list[tuple[str, Slice, Check]] = []
    for oracle, over in product(sorted({accuracy.oracle for accuracy in known}), SLICES):
        new_estimates, check = estimated(session, run, oracle, over, known)
        estimates += new_estimates
        checks += [(oracle, over, check)] if check else []
    return Audits(known, estimates, checks, between_oracles(session, run), between_annotators(session, run))


def _agreements(counts: Mapping[tuple[str, str], Mapping[VerdictPair, int]]) -> list[Agreement]:
    return [Agreement(first, second, kappa(pairs)) for (first, second), pairs in counts.items()]
