"""R-Zero's Table 4: the accuracy of every Solver of a run on every iteration's questions (docs/matrix.md).

A question set is a random sample of an iteration's questions that have a pseudo-label and whose true answer an oracle
knows. Each Solver answers it greedily. The results are stored as evaluations under a separate name for each set, so no
question is asked twice, and the held-out benchmark's figures do not include them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.grading.grader import Grader
from core.questions.prompts import solver_messages
from core.seeds import seed_for
from core.settings.config import RunConfig
from core.settings.training import Sampling
from core.statistics.estimates import Estimate, share
from core.types import BenchmarkItem, Checkpoint, Evaluated, question_key
from orchestrator.evaluation.answering import graded
from orchestrator.stages.context import BATCH, Context
from services.inference.client import spent
from services.inference.engines.base import Prompt
from storage import queries
from storage.rows import Over

Sets = Mapping[str, Sequence[BenchmarkItem]]  # name of the question set -> its questions, in the order of the draw

_SET_NAME = re.compile(r"questions/([0-9]+)/(.+)")
_SLICES: tuple[Over, ...] = ("all", "kept")


class MatrixError(CoevoError):
    """There is nothing to ask or to show; the message names the oracle and what was expected."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The share of right answers to an iteration's question set, given by a Solver or as pseudo-labels."""

    questions: int  # the iteration that the questions are from
    solver: str | None  # None: the pseudo-labels
    over: Over
    figure: Estimate


def set_name(iteration: int, oracle: str) -> str:
    """The name under which evaluations on an iteration's questions are stored in place of a benchmark's name.

    The oracle is part of it, because two oracles may take different answers for the true one.
    """
    return f"questions/{iteration}/{oracle}"


def question_sets(session: Session, run: str, oracle: str, size: int) -> dict[str, list[BenchmarkItem]]:
    """The question set of each iteration that `oracle` has graded: `size` questions, or all if there are fewer.

    A set is the beginning of a random order, which derives from the run's seed and the iteration. So a larger set
    contains the smaller ones. An item's level is its question's verdict.

    Raises:
        NotThere: no such run.
        MatrixError: `size` is not positive, the oracle has graded a sample only, or it knows no answer at all.
    """
    if size < 1:
        raise MatrixError(f"size: expected at least 1, got {size}")
    seed = queries.runs.get_run(session, run).seed
    sets = dict[str, list[BenchmarkItem]]()
    for iteration in queries.audits.oracles_of(session, run).get(oracle, []):
        _refuse_sample(session, run, iteration, oracle)
        if items := _items_with_truth(session, run, iteration, oracle):
            sets[set_name(iteration, oracle)] = draw(items, size, seed)
    if not sets:
        raise MatrixError(f"oracle: expected one that knows true answers of run {run}'s questions, got {oracle!r}")
    return sets


def _refuse_sample(session: Session, run: str, iteration: int, oracle: str) -> None:
    """Raise `MatrixError` if the oracle graded only a sample. It is stratified by p_hat, so plain shares are biased."""
    drawn, graded = queries.audits.sample_progress(session, run, iteration, oracle)
    labelled = len(queries.audits.auditable(session, run, iteration)) if drawn else 0
    if graded < labelled:
        raise MatrixError(
            f"oracle: expected one that has graded all questions of an iteration, got {oracle!r}, which has graded "
            f"{graded:,} of {labelled:,} in iteration {iteration}"
        )


def _items_with_truth(session: Session, run: str, iteration: int, oracle: str) -> list[BenchmarkItem]:
    labels = queries.questions.oracle_labels_of(session, run, iteration, oracle)
    truths = {label.question_id: label.truth for label in labels if label.verdict in ("right", "wrong")}
    rows = [(row, truths.get(row.question_id)) for row in queries.questions.labels_of(session, run, iteration)]
    return [
        BenchmarkItem(row.question_id, row.text, truth, row.verdict)
        for row, truth in rows
        if row.text is not None and truth is not None
    ]


def draw(items: Sequence[BenchmarkItem], size: int, seed: int) -> list[BenchmarkItem]:
    """A simple random sample without replacement: the first `size` items, ordered by a hash.

    The hash is of `seed`, iteration and index of the question. It leaves out the run's name, so that the same run under
    another name draws the same questions.
    """
    return sorted(items, key=lambda item: seed_for(seed, "matrix", *question_key(item.id)[1:]))[:size]


def unanswered(session: Session, solver: str, sets: Sets) -> dict[str, list[BenchmarkItem]]:
    """The items of each set that have no stored answer of the Solver. Complete sets are left out."""
    missing = dict[str, list[BenchmarkItem]]()
    for name, items in sets.items():
        done = {row.item_id for row in queries.evaluations.evaluations_of(session, solver, name)}
        if remaining := [item for item in items if item.id not in done]:
            missing[name] = remaining
    return missing


def ask_all(context: Context, sets: Sets) -> None:
    """Ask every Solver the questions that it has not answered. Each is swapped in once and has the services to itself.

    Raises what `Context.serving` raises, `InferenceError` and `GradingError`. Answers given before that stay stored.
    """
    with context.store.read() as session:
        solvers = queries.checkpoints.solvers_of(session, context.run)
        solvers = [solver for solver in solvers if unanswered(session, solver.id, sets)]
    with Grader() as grader:
        for solver in solvers:
            with context.serving({"solver": solver}):
                ask(context, solver, sets, grader)


def ask(context: Context, solver: Checkpoint, sets: Sets, grader: Grader) -> None:
    """Ask the Solver that is being served the questions that it has not answered; store its answers batch by batch."""
    with context.store.read() as session:  # after the wait for the services, in which another process may have asked
        remaining = unanswered(session, solver.id, sets)
    batches = [
        (name, items[start : start + BATCH])
        for name, items in remaining.items()
        for start in range(0, len(items), BATCH)
    ]
    names = {"model": solver.id, "checkpoint": solver.id, "run": context.run}
    with context.store.write() as session:
        keys = {
            name: queries.evaluations.begin_evaluation(session, **names, benchmark=name, manifest={}).id
            for name in remaining
        }
    total, done = sum(map(len, remaining.values())), 0
    prompts = ([_prompt(context.config, item) for item in items] for _, items in batches)
    with context.replies_in_order("solver", solver, prompts) as replies_of_batches:
        for (name, items), replies in zip(batches, replies_of_batches, strict=True):
            results, answers = graded(items, replies, grader)
            with context.store.write() as session:
                queries.evaluations.add_results(session, keys[name], results, answers)
                queries.usage.add_usage(session, context.key, "evaluation", spent(replies))
            done += len(items)
            context.progress(done, total, f"questions, by {solver.id}")


def _prompt(config: RunConfig, item: BenchmarkItem) -> Prompt:
    """A greedy prompt, as in the benchmark's greedy evaluation (R-Zero D.2). Greedy decoding does not use the seed."""
    greedy = Sampling(temperature=0, max_tokens=config.evaluation.sampling.max_tokens)
    return Prompt(tuple(solver_messages(item.problem)), 0, 1, greedy)


def cells(session: Session, run: str, oracle: str) -> list[Cell]:
    """The stored results, set by set: first the Solvers by iteration, then the pseudo-labels of the same questions.

    There is one cell over all questions of a set and one over its kept questions. A cell without questions is left out.
    """
    evaluated: dict[int, dict[str, list[Evaluated]]] = {}
    for solver, name in queries.evaluations.evaluated(session, run):
        match = _SET_NAME.fullmatch(name)
        if match and match[2] == oracle:
            evaluated.setdefault(int(match[1]), {})[solver] = queries.evaluations.evaluations_of(session, solver, name)
    return [
        cell for iteration in sorted(evaluated) for cell in _row(session, run, iteration, oracle, evaluated[iteration])
    ]


def _row(
    session: Session, run: str, iteration: int, oracle: str, evaluated: Mapping[str, Sequence[Evaluated]]
) -> Iterator[Cell]:
    verdicts = {
        label.question_id: label.verdict
        for label in queries.questions.oracle_labels_of(session, run, iteration, oracle)
    }
    labels = {
        item.item_id: (item.level, verdicts[item.item_id] == "right") for items in evaluated.values() for item in items
    }
    row: dict[str | None, list[tuple[str | None, bool]]] = {
        solver: [(item.level, item.greedy_correct) for item in items] for solver, items in evaluated.items()
    }
    row[None] = [*labels.values()]
    for over in _SLICES:
        for solver, answers in row.items():
            right = [right for level, right in answers if over == "all" or level == "kept"]
            if figure := share(sum(right), len(right)):
                yield Cell(iteration, solver, over, figure)
