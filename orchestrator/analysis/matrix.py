"""R-Zero's Table 4: evaluates every Solver of a run on the questions of every iteration (docs/evaluation.md).

An iteration's question set is a benchmark: a random sample of its questions that have a pseudo-label and whose true
answer an oracle knows. Each Solver answers it greedily. `services.evaluations.matrix` makes the table of these
evaluations. The held-out benchmark's figures do not include them, because their names differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.grading.grader import process_grader
from core.seeds import seed_for
from core.settings.evaluation import Benchmark, Protocol
from core.types import BenchmarkItem, Checkpoint, question_key
from orchestrator.evaluation.answering import answer_all
from orchestrator.question_sets.benchmarks import LoadedBenchmark
from orchestrator.stages.context import Context
from orchestrator.stages.evaluate import begin, charge
from services.evaluations.matrix import known_answers, set_name
from storage import queries


class MatrixError(CoevoError):
    """There is nothing to ask or to show; the message names the oracle and what was expected."""


def question_sets(session: Session, run: str, oracle: str, size: int) -> list[LoadedBenchmark]:
    """The question set of each iteration that `oracle` has graded: `size` questions, or all if there are fewer.

    A set is the beginning of a random order, which derives from the run's seed and the iteration. So a larger set
    contains the smaller ones, and extends their evaluations: its `sha256` is that of its name. If the oracle has a
    sample, the order is that of the sample. An item's level is its question's verdict.

    Raises:
        NotThere: no such run.
        MatrixError: `size` is not positive, or the oracle knows no answer at all.
    """
    if size < 1:
        raise MatrixError(f"size: expected at least 1, got {size}")
    config = queries.runs.config_of_run(session, run)
    sets, inherited = list[LoadedBenchmark](), queries.forks.inherited(session, run)
    for iteration in queries.audits.oracles_of(session, run).get(oracle, []):
        maker = inherited.get(iteration, run)
        truths = known_answers(queries.questions.oracle_labels_of(session, maker, iteration, oracle))
        items = {
            row.question_id: BenchmarkItem(row.question_id, row.text, truths[row.question_id], row.verdict)
            for row in queries.questions.labels_of(session, maker, iteration)
            if row.text is not None and row.question_id in truths
        }
        if sample := queries.audits.samples_of(session, maker, iteration, oracle):
            drawn = [items[row.question_id] for row in sample if row.question_id in items][:size]
        else:
            drawn = draw([*items.values()], size, config.seed)
        if drawn:
            name, title = set_name(iteration, oracle), f"questions of iteration {iteration}, answers by {oracle}"
            definition = Benchmark(title=title, source=f"the run {run}").asked_with(config.solver.template)
            sha256 = hashlib.sha256(f"{run}/{name}".encode()).hexdigest()
            sets.append(LoadedBenchmark(name, definition, tuple(drawn), sha256))
    if not sets:
        raise MatrixError(f"oracle: expected one that knows true answers of run {run}'s questions, got {oracle!r}")
    return sets


def draw(items: Sequence[BenchmarkItem], size: int, seed: int) -> list[BenchmarkItem]:
    """A simple random sample without replacement: the first `size` items, ordered by a hash.

    The hash is of `seed`, iteration and index of the question. It leaves out the run's name, so that the same run under
    another name draws the same questions.
    """
    return sorted(items, key=lambda item: seed_for(seed, "matrix", *question_key(item.id)[1:]))[:size]


def unanswered(session: Session, solver: str, sets: Sequence[LoadedBenchmark]) -> list[LoadedBenchmark]:
    """The items of each set that have no stored answer of the Solver. Complete sets are left out."""
    remaining = []
    for benchmark in sets:
        answered = {row.item_id for row in queries.evaluations.evaluations_of(session, solver, benchmark.name)}
        if items := [item for item in benchmark.items if item.id not in answered]:
            remaining.append(replace(benchmark, items=tuple(items)))
    return remaining


def ask_all(context: Context, sets: Sequence[LoadedBenchmark]) -> None:
    """Ask every Solver the questions that it has not answered. Each is swapped in once and has the services to itself.
    Solvers whose files were removed are left out, and so are those that a fork has inherited: the answers of these are
    to the questions of the run that made them.

    Raises what `Context.serving` raises, `InferenceError` and `GradingError`. Answers given before that stay stored.
    """
    with context.store.read() as session:
        solvers = [of for of in queries.checkpoints.solvers_of(session, context.run.name) if of.run == context.run.name]
        solvers = [solver for solver in solvers if unanswered(session, solver.id, sets) and not solver.files_removed]
    for solver in solvers:
        with context.serving({"solver": solver}):
            ask(context, solver, sets)


def ask(context: Context, solver: Checkpoint, sets: Sequence[LoadedBenchmark]) -> None:
    """Ask the Solver that is being served the questions that it has not answered; store its answers batch by batch."""
    config = context.config
    protocol = Protocol(samples=0, sampling=config.evaluation.sampling)  # greedily only, as in R-Zero D.2
    with context.store.read() as session:  # after the wait for the services, in which another process may have asked
        remaining = unanswered(session, solver.id, sets)
    whole = {benchmark.name: benchmark for benchmark in sets}
    for benchmark in remaining:
        questions = len(whole[benchmark.name].items)
        with context.store.write() as session:
            row = begin(session, context, solver, whole[benchmark.name], protocol)
            if row.manifest["benchmark"]["questions"] < questions:  # the set has grown
                queries.evaluations.extend(session, row, questions)
        answer_all(
            context.store,
            row,
            benchmark,
            protocol,
            config.seed,
            partial(context.replies_in_order, "solver", solver),
            process_grader(),
            lambda done, total, what: context.progress(done, total, f"{what}, by {solver.id}"),
            charge=partial(charge, context),
        )
