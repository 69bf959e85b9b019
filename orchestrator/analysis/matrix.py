"""R-Zero's Table 4: every Solver of a run on every iteration's questions, by an oracle's answers to them.

A question set is a random sample of an iteration's questions that have a pseudo-label and of which the oracle knows the
true answer. Each Solver answers it greedily. What comes of it is stored as evaluations, under a name of its own for
each set, so nothing is asked twice, and the held-out benchmark's figures know nothing of it. `docs/matrix.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.questions.prompts import solver_messages
from core.seeds import seed_for
from core.settings.config import RunConfig
from core.settings.training import Sampling
from core.statistics.estimates import Estimate, share
from core.types import BenchmarkItem, Checkpoint, Evaluated, question_key
from orchestrator.stages.context import BATCH, Context
from services.inference.client import Reply
from services.inference.engines.base import Prompt
from storage import queries
from storage.rows import Over

Sets = Mapping[str, Sequence[BenchmarkItem]]  # the set's name -> its questions, in the order of the draw

_NAME = re.compile(r"questions/([0-9]+)/(.+)")
_SLICES: tuple[Over, ...] = ("all", "kept")


class MatrixError(CoevoError):
    """There is nothing to ask the Solvers; says of which oracle, and what was expected."""


@dataclass(frozen=True, slots=True)
class Cell:
    """How much of an iteration's question set is right: of a Solver's answers, or of the pseudo-labels."""

    questions: int  # the iteration that they are of
    solver: str | None  # None: the pseudo-labels
    over: Over
    figure: Estimate


def set_name(iteration: int, oracle: str) -> str:
    """What the evaluations on an iteration's questions are stored under, where a benchmark's have its name. The oracle
    is part of it: two of them may hold different answers to be the true one."""
    return f"questions/{iteration}/{oracle}"


def question_sets(session: Session, run: str, oracle: str, size: int) -> dict[str, list[BenchmarkItem]]:
    """The question set of each iteration that `oracle` has graded: `size` questions, or all where there are fewer.

    A set is the beginning of one random order, which derives from the run's seed and the iteration, so a larger one
    contains the smaller. An item's level is its question's verdict.

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
        if items := _known(session, run, iteration, oracle):
            sets[set_name(iteration, oracle)] = draw(items, size, seed)
    if not sets:
        raise MatrixError(f"oracle: expected one that knows true answers of run {run}'s questions, got {oracle!r}")
    return sets


def _refuse_sample(session: Session, run: str, iteration: int, oracle: str) -> None:
    """An audit's sample is stratified by p_hat: shares of it, unweighted, are not those of the questions."""
    drawn, graded = queries.audits.sample_progress(session, run, iteration, oracle)
    labelled = len(queries.audits.auditable(session, run, iteration)) if drawn else 0
    if graded < labelled:
        raise MatrixError(
            f"oracle: expected one that has graded all questions of an iteration, got {oracle!r}, which has graded "
            f"{graded:,} of {labelled:,} in iteration {iteration}"
        )


def _known(session: Session, run: str, iteration: int, oracle: str) -> list[BenchmarkItem]:
    labels = queries.questions.oracle_labels_of(session, run, iteration, oracle)
    truths = {label.question_id: label.truth for label in labels if label.verdict in ("right", "wrong")}
    rows = [(row, truths.get(row.question_id)) for row in queries.questions.labels_of(session, run, iteration)]
    return [
        BenchmarkItem(row.question_id, row.text, truth, row.verdict)
        for row, truth in rows
        if row.text is not None and truth is not None
    ]


def draw(items: Sequence[BenchmarkItem], size: int, seed: int) -> list[BenchmarkItem]:
    """A simple random sample without replacement: the first `size` in the order of a hash of `seed` and the question's
    place in the run, whose name does not matter."""
    return sorted(items, key=lambda item: seed_for(seed, "matrix", *question_key(item.id)[1:]))[:size]


def solvers_of(session: Session, run: str) -> list[Checkpoint]:
    """S(0), which is the base model, and every Solver that the run has trained, by iteration."""
    return [
        checkpoint for checkpoint in queries.checkpoints.checkpoints_of(session, run) if checkpoint.role != "challenger"
    ]


def left(session: Session, solver: str, sets: Sets) -> dict[str, list[BenchmarkItem]]:
    """What a Solver has not been asked; a set that it has been asked all of is not in it."""
    missing = dict[str, list[BenchmarkItem]]()
    for name, items in sets.items():
        done = {row.item_id for row in queries.figures.evaluations_of(session, solver, name)}
        if rest := [item for item in items if item.id not in done]:
            missing[name] = rest
    return missing


def ask_all(context: Context, sets: Sets) -> None:
    """Ask every Solver what it has not been asked: each is swapped in once, and has the services to itself meanwhile.

    Raises what `Context.serving` does, `InferenceError` and `GradingError`. What was answered before is stored.
    """
    with context.store.read() as session:
        solvers = [checkpoint for checkpoint in solvers_of(session, context.run) if left(session, checkpoint.id, sets)]
    with Grader() as grader:
        for solver in solvers:
            with context.serving({"solver": solver}):
                ask(context, solver, sets, grader)


def ask(context: Context, solver: Checkpoint, sets: Sets, grader: Grader) -> None:
    """Ask a Solver that is being served what it has not been asked, and store it batch by batch."""
    with context.store.read() as session:  # now, not before the wait for the services: another process may have asked
        rest = left(session, solver.id, sets)
    parts = [
        (name, items[start : start + BATCH]) for name, items in rest.items() for start in range(0, len(items), BATCH)
    ]
    total, done = sum(map(len, rest.values())), 0
    prompts = ([_prompt(context.config, item) for item in part] for _, part in parts)
    with context.asked_in_turn("solver", solver, prompts) as answered:
        for (name, part), replies in zip(parts, answered, strict=True):
            rows = [*_graded(part, replies, grader)]
            with context.store.write() as session:
                queries.figures.add_evaluations(session, checkpoint=solver.id, benchmark=name, items=rows)
            done += len(part)
            context.progress(done, total, f"questions, by {solver.id}")


def _prompt(config: RunConfig, item: BenchmarkItem) -> Prompt:
    """Greedy, as the benchmark's is (R-Zero D.2), so the seed has no part in it."""
    greedy = Sampling(temperature=0, max_tokens=config.evaluation.sampling.max_tokens)
    return Prompt(tuple(solver_messages(item.problem)), 0, 1, greedy)


def _graded(items: Sequence[BenchmarkItem], replies: Sequence[Sequence[Reply]], grader: Grader) -> Iterator[Evaluated]:
    """The greedy answer is the only one, so every count is of it."""
    answers = [extract_boxed(reply.text) for [reply] in replies]
    pairs = [(answer, item.answer) for answer, item in zip(answers, items, strict=True) if answer is not None]
    compared = iter(grader.compare_many(pairs))
    for item, answer in zip(items, answers, strict=True):
        right = answer is not None and next(compared).verdict == "equal"
        yield Evaluated(item.id, item.level, 1, int(right), right, right)


def cells(session: Session, run: str, oracle: str) -> list[Cell]:
    """What is stored, set by set: the Solvers by iteration, then the pseudo-labels of the same questions; over all of
    the set and over those of it that were kept. A cell of no question is not there."""
    asked: dict[int, dict[str, list[Evaluated]]] = {}
    for solver, name in queries.figures.evaluated(session, run):
        match = _NAME.fullmatch(name)
        if match and match[2] == oracle:
            asked.setdefault(int(match[1]), {})[solver] = queries.figures.evaluations_of(session, solver, name)
    return [cell for iteration in sorted(asked) for cell in _row(session, run, iteration, oracle, asked[iteration])]


def _row(
    session: Session, run: str, iteration: int, oracle: str, asked: Mapping[str, Sequence[Evaluated]]
) -> Iterator[Cell]:
    verdicts = {
        label.question_id: label.verdict
        for label in queries.questions.oracle_labels_of(session, run, iteration, oracle)
    }
    labels = {
        item.item_id: (item.level, verdicts[item.item_id] == "right") for items in asked.values() for item in items
    }
    row: dict[str | None, list[tuple[str | None, bool]]] = {
        solver: [(item.level, item.greedy_correct) for item in items] for solver, items in asked.items()
    }
    row[None] = [*labels.values()]
    for over in _SLICES:
        for solver, answers in row.items():
            right = [right for level, right in answers if over == "all" or level == "kept"]
            if figure := share(sum(right), len(right)):
                yield Cell(iteration, solver, over, figure)
