"""Evaluates S(t) on the run's benchmarks (R-Zero D.2), and on that of early stopping.

Each question gets `samples` answers at the sampling temperature and one greedy answer.
"""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from core.grading.grader import process_grader
from core.settings.config import CoEvolution
from core.settings.evaluation import Protocol
from core.types import Checkpoint, Role, Spent
from orchestrator.evaluation.answering import answer_all
from orchestrator.evaluation.manifest import manifest_of
from orchestrator.ledger import LastWrite
from orchestrator.question_sets.benchmarks import BenchmarkError, LoadedBenchmark, evaluated_in
from orchestrator.question_sets.held_out import load_for
from orchestrator.serving.applications import engine_of
from orchestrator.stages.context import Context
from storage import queries
from storage.files.texts import TextWriter, evaluation_path
from storage.rows import EvaluationRow


def evaluate(context: Context) -> LastWrite:
    return evaluate_checkpoint(context, context.checkpoint("solver"))


def evaluate_checkpoint(context: Context, solver: Checkpoint) -> LastWrite:
    """Evaluate a checkpoint on all of the run's benchmarks.

    Raises `BenchmarkError` if a benchmark has changed since its evaluation began.
    """
    config, questions = context.config, 0
    asks_challenger_next = isinstance(config, CoEvolution) and context.iteration < config.iterations
    for_later: dict[Role, Checkpoint] = {"challenger": context.checkpoint("challenger")} if asks_challenger_next else {}
    with context.serving({"solver": solver}, for_later=for_later):
        for name, protocol in evaluated_in(config).items():
            benchmark = load_for(config, name)
            with context.write() as session:
                row = begin(session, context, solver, benchmark, protocol)
            begun_with = row.manifest["benchmark"]["sha256"]
            if begun_with != benchmark.sha256:
                raise BenchmarkError(
                    f"benchmark {name}: it has changed since this evaluation began: expected questions with the sha256 "
                    f"{begun_with}, got {benchmark.sha256}"
                )
            path, keeps_texts = evaluation_path(context.run.home.texts, row.id), config.rollout_text == "all"
            answer_all(
                context.store,
                row,
                benchmark,
                protocol,
                config.seed,
                partial(context.replies_in_order, "solver", solver),
                process_grader(),
                context.batch_done,
                TextWriter(path, context.refuse_lost) if keeps_texts else None,
                write=context.write,
                charge=partial(charge, context),
            )
            questions += len(benchmark.items)
    return lambda _session: {"checkpoint": solver.id, "items": questions}


def begin(
    session: Session, context: Context, solver: Checkpoint, benchmark: LoadedBenchmark, protocol: Protocol
) -> EvaluationRow:
    """Store the evaluation of a run's checkpoint on a benchmark, or return the one that was begun, which goes on."""
    config = context.config
    identity, engine = {"checkpoint": solver.id, "sha256": solver.sha256}, engine_of(config.serving.applications)
    manifest = manifest_of(identity, engine, benchmark, protocol, config.seed)
    queries.evaluations.add_benchmark_items(session, benchmark.sha256, benchmark.items)
    names = {"model": solver.id, "checkpoint": solver.id, "run": context.run.name, "benchmark": benchmark.name}
    return queries.evaluations.begin_evaluation(session, **names, manifest=manifest)


def charge(context: Context, session: Session, spent: Spent) -> None:
    queries.usage.add_usage(session, context.key, "evaluation", spent)
