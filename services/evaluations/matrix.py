"""R-Zero's Table 4 from the stored rows: the accuracy of every Solver on every iteration's questions, and that of the
pseudo-labels of the same questions. `docs/evaluation.md` says which questions these are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sqlalchemy.orm import Session

from core.statistics.audits import Stratum, stratified_share
from core.statistics.estimates import Estimate, share
from core.statistics.seeds import over_seeds
from core.types import Evaluated, OracleLabel
from services.oracles.accuracy import SLICES
from storage import queries
from storage.rows import Slice

_SET_NAME = re.compile(r"questions/([0-9]+)/(.+)")


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """The share of right answers to an iteration's question set, given by a Solver or as pseudo-labels.

    If the oracle has graded a sample of the iteration, the share is weighted to all questions of `over` whose true
    answer the oracle would know. `figure.n` is the number of questions that were answered.
    """

    oracle: str  # whose answers count as true
    questions: int  # the iteration that the questions are from
    solver: str | None  # None: the pseudo-labels
    over: Slice
    figure: Estimate


def set_name(iteration: int, oracle: str) -> str:
    """The name under which evaluations on an iteration's questions are stored in place of a benchmark's name.

    The oracle is part of it, because two oracles may take different answers for the true one.
    """
    return f"questions/{iteration}/{oracle}"


def is_set(benchmark: str) -> bool:
    """Whether an evaluation's benchmark is an iteration's question set."""
    return _SET_NAME.fullmatch(benchmark) is not None


def known_answers(labels: Sequence[OracleLabel]) -> dict[str, str]:
    """Question -> its true answer, where the oracle knows it. An ill-posed question has none."""
    return {
        label.question_id: label.truth
        for label in labels
        if label.verdict in ("right", "wrong") and label.truth is not None
    }


def cells(session: Session, run: str) -> list[MatrixCell]:
    """The stored results by oracle and iteration: first the Solvers by iteration, then the pseudo-labels.

    There is one cell over all questions of a set and one over its kept questions. A cell without questions is left out,
    and so are those over all questions if the oracle's sample was drawn from the kept ones.
    """
    sets: dict[tuple[str, int], dict[str, list[Evaluated]]] = {}
    for solver, name in queries.evaluations.evaluated(session, run):
        if match := _SET_NAME.fullmatch(name):
            results = queries.evaluations.evaluations_of(session, solver, name)
            sets.setdefault((match[2], int(match[1])), {})[solver] = results
    return [
        cell
        for oracle, iteration in sorted(sets)
        for cell in _row(session, run, iteration, oracle, sets[oracle, iteration])
    ]


def mean_cells(of_runs: Sequence[Sequence[MatrixCell]]) -> list[MatrixCell]:
    """The means of the cells that all of several runs have, with the interval of `over_seeds` over the runs.

    `figure.n` is the number of runs, and `solver` has no run's name: base/0 or solver/3.
    """
    values: dict[tuple[str, int, str | None, Slice], list[float]] = {}
    fewest: dict[tuple[str, int, str | None, Slice], int] = {}  # questions of any of the runs
    for cell in chain.from_iterable(of_runs):
        key = (cell.oracle, cell.questions, cell.solver and cell.solver.partition("/")[2], cell.over)
        values.setdefault(key, []).append(cell.figure.value)
        fewest[key] = min(fewest.get(key, cell.figure.n), cell.figure.n)
    return [
        MatrixCell(*key, figure)
        for key, of_cell in values.items()
        if len(of_cell) == len(of_runs) and (figure := over_seeds(of_cell, True, 1 / fewest[key])) is not None
    ]


def _row(
    session: Session, run: str, iteration: int, oracle: str, evaluated: Mapping[str, Sequence[Evaluated]]
) -> Iterator[MatrixCell]:
    run = queries.forks.made_by(session, run, iteration)
    labels = queries.questions.oracle_labels_of(session, run, iteration, oracle)
    verdicts = {label.question_id: label.verdict for label in labels}
    known = known_answers(labels)
    kept = {item.item_id for items in evaluated.values() for item in items if item.level == "kept"}
    right: dict[str | None, dict[str, bool]] = {
        solver: {item.item_id: bool(item.greedy_correct) for item in items if item.item_id in known}
        for solver, items in evaluated.items()
    }
    right[None] = {key: verdicts[key] == "right" for answers in [*right.values()] for key in answers}
    stratum_of = {row.question_id: row.stratum for row in queries.audits.samples_of(session, run, iteration, oracle)}
    sizes = _sizes(session, run, iteration, oracle, labels, stratum_of) if stratum_of else None
    for over in reversed(SLICES):
        for solver, answers in right.items():
            in_slice = {key: value for key, value in answers.items() if over == "all" or key in kept}
            if sizes is None:
                figure = share(sum(in_slice.values()), len(in_slice))
            else:  # weighted, so that each stratum counts by its size
                answered = Counter(stratum_of[key] for key in in_slice)
                correct = Counter(stratum_of[key] for key, value in in_slice.items() if value)
                strata = [Stratum(size, answered[name], correct[name]) for name, size in sizes[over].items()]
                figure = stratified_share(strata)
            if figure is not None:
                yield MatrixCell(oracle, iteration, solver, over, figure)


def _sizes(
    session: Session,
    run: str,
    iteration: int,
    oracle: str,
    labels: Sequence[OracleLabel],
    stratum_of: Mapping[str, str],
) -> dict[Slice, dict[str, int]]:
    """The strata of each slice of an oracle's sample, with the number of their questions whose true answer it would
    know.

    This number is estimated from the questions that the oracle has graded. The error of the estimate is not in the
    intervals; it is zero if none of the graded questions is ill-posed.
    """
    graded = Counter(stratum_of[label.question_id] for label in labels if label.question_id in stratum_of)
    known = Counter(stratum_of[key] for key in known_answers(labels) if key in stratum_of)
    return {
        over: {
            name: round(stratum.size * known[name] / graded[name]) if graded[name] else stratum.size
            for name, stratum in strata.items()
        }
        for over, strata in queries.audits.strata_of(session, run, iteration, oracle).items()
    }
