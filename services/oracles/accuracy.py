"""What the audits of a run come to: label accuracy as it was measured, as it is estimated between audits, and how far
those who audited agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from sqlalchemy.orm import Session

from core.statistics.audits import Said, kappa, stratified_share
from core.statistics.calibration import Check, calibration_check, estimate_accuracy
from core.statistics.estimates import Estimate, share
from storage import queries

Slice = Literal["kept", "all"]
SLICES: tuple[Slice, ...] = ("kept", "all")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Label accuracy of one iteration, by one oracle, over the kept questions or over all."""

    iteration: int
    oracle: str
    over: Slice
    figure: Estimate  # its n are the audits; those of other iterations where it is estimated
    population: int  # pseudo-labels that it is of
    frame: Literal["all", "sample"] | None  # what the oracle was asked of; None: estimated, not measured


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two agree on the pseudo-labels of which both have said something; None: `core.statistics.audits.kappa`
    says when."""

    first: str
    second: str
    kappa: Estimate | None


def measured(session: Session, run: str) -> list[Accuracy]:
    """By oracle and iteration. An oracle with a sample is weighted to the whole set
    (`core.statistics.audits.stratified_share`); one that was asked of everything has the plain share of what it has
    said so far."""
    return [
        accuracy
        for oracle, iterations in queries.audits.oracles_of(session, run).items()
        for iteration in iterations
        for accuracy in measured_in(session, run, iteration, oracle)
    ]


def measured_in(session: Session, run: str, iteration: int, oracle: str) -> list[Accuracy]:
    """The same of one iteration and oracle; nothing where nothing was audited."""
    sampled = queries.audits.sample_progress(session, run, iteration, oracle)[0] > 0
    accuracies = []
    for over, strata in queries.audits.strata_of(session, run, iteration, oracle).items():
        n, right = sum(stratum.n for stratum in strata), sum(stratum.right for stratum in strata)
        figure = stratified_share(strata) if sampled else share(right, n)
        if figure is not None and over != "":
            size = sum(stratum.size for stratum in strata)
            accuracies.append(Accuracy(iteration, oracle, over, figure, size, "sample" if sampled else "all"))
    return accuracies


def estimated(
    session: Session, run: str, oracle: str, over: Slice, known: list[Accuracy]
) -> tuple[list[Accuracy], Check | None]:
    """Label accuracy of the iterations that the oracle has not audited, from p_hat (`core.statistics.calibration`), and
    how well the same does on those it has audited; `known` is what was `measured`."""
    cells = queries.audits.audited_cells(session, run, oracle, kept_only=over == "kept")
    populations = queries.audits.p_hats_of(session, run, kept_only=over == "kept")
    figures = {
        accuracy.iteration: accuracy.figure for accuracy in known if (accuracy.oracle, accuracy.over) == (oracle, over)
    }
    points = []
    for iteration, population in populations.items():
        if iteration not in figures and (figure := estimate_accuracy(cells, population)) is not None:
            points.append(Accuracy(iteration, oracle, over, figure, sum(population.values()), None))
    return points, calibration_check(cells, populations, figures)


def between_oracles(session: Session, run: str) -> list[Agreement]:
    """Of every two oracles that have said something of a same pseudo-label."""
    oracles = sorted(queries.audits.oracles_of(session, run))
    pairs = {(a, b): queries.audits.agreement(session, run, a, b) for a, b in combinations(oracles, 2)}
    return _agreements({names: counts for names, counts in pairs.items() if counts})


def between_annotators(session: Session, run: str) -> list[Agreement]:
    """Of every two people who have said something of a same pseudo-label."""
    return _agreements(queries.audits.annotator_agreement(session, run))


@dataclass(frozen=True, slots=True)
class Audits:
    """All that a run's audits come to."""

    measured: list[Accuracy]
    estimated: list[Accuracy]
    checks: list[tuple[str, Slice, Check]]  # of the estimates, by oracle
    oracles: list[Agreement]
    annotators: list[Agreement]


def audits_of(session: Session, run: str) -> Audits:
    """Of every oracle and iteration."""
    known = measured(session, run)
    points: list[Accuracy] = []
    checks: list[tuple[str, Slice, Check]] = []
    for oracle in sorted({accuracy.oracle for accuracy in known}):
        for over in SLICES:
            more, check = estimated(session, run, oracle, over, known)
            points += more
            checks += [(oracle, over, check)] if check else []
    return Audits(known, points, checks, between_oracles(session, run), between_annotators(session, run))


def _agreements(counts: Mapping[tuple[str, str], Mapping[Said, int]]) -> list[Agreement]:
    return [Agreement(first, second, kappa(pairs)) for (first, second), pairs in counts.items()]
