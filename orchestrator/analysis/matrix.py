"""R-Zero's Table 4: asks every Solver of a run the questions of every iteration (docs/evaluation.md).

A question set is a random sample of an iteration's questions that have a pseudo-label and whose true answer an oracle
knows. Each Solver answers it greedily. The results are stored as evaluations under a separate name for each set, so no
question is asked twice, and the held-out benchmark's figures do not include them. `services.matrix` makes the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.grading.grader import Grader
from core.seeds import seed_for
from core.settings.config import RunConfig
from core.settings.training import Sampling
from core.types import BenchmarkItem, Checkpoint, question_key
from orchestrator.evaluation.answering import graded
from orchestrator.stages.context import BATCH, Context
from services.inference.client import spent
from services.inference.engines.base import Prompt
from services.matrix import known_answers, set_name
from storage import queries

Sets = Mapping[str, Sequence[BenchmarkItem]]  # name of the question set -> its questions, in the order of the draw


class MatrixError(CoevoError):
    """There is nothing to ask or to show; the message names the oracle and what was expected."""


def question_sets(session: Session, run: str, oracle: str, size: int) -> dict[str, list[BenchmarkItem]]:
    """The question set of each iteration that `oracle` has graded: `size` questions, or all if there are fewer.

    A set is the beginning of a random order, which derives from the run's seed and the iteration. So a larger set
    contains the smaller ones. If the oracle has a sample, the order is that of the sample. An item's level is its
    question's verdict.

    Raises:
        NotThere: no such run.
        MatrixError: `size` is not positive, or the oracle knows no answer at all.
    """
    if size < 1:
        raise MatrixError(f"size: expected at least 1, got {size}")
    seed = queries.runs.get_run(session, run).seed
    sets = dict[str, list[BenchmarkItem]]()
    for iteration in queries.audits.oracles_of(session, run).get(oracle, []):
        items = _items_with_truth(session, run, iteration, oracle)
        if sample := queries.audits.samples_of(session, run, iteration, oracle):
            by_id = {item.id: item for item in items}
            drawn = [by_id[row.question_id] for row in sample if row.question_id in by_id][:size]
        else:
            drawn = draw(items, size, seed)
        if drawn:
            sets[set_name(iteration, oracle)] = drawn
    if not sets:
        raise MatrixError(f"oracle: expected one that knows true answers of run {run}'s questions, got {oracle!r}")
    return sets


def _items_with_truth(session: Session, run: str, iteration: int, oracle: str) -> list[BenchmarkItem]:
    truths = known_answers(queries.questions.oracle_labels_of(session, run, iteration, oracle))
    return [
        BenchmarkItem(row.question_id, row.text, truths[row.question_id], row.verdict)
        for row in queries.questions.labels_of(session, run, iteration)
        if row.text is not None and row.question_id in truths
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
    Solvers whose files were removed are left out.

    Raises what `Context.serving` raises, `InferenceError` and `GradingError`. Answers given before that stay stored.
    """
    with context.store.read() as session:
        solvers = queries.checkpoints.solvers_of(session, context.run)
        solvers = [solver for solver in solvers if unanswered(session, solver.id, sets) and not solver.files_removed]
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
    return Prompt(tuple(config.solver.template.messages(item.problem)), 0, 1, greedy)
