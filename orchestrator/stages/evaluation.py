"""The evaluation of a run's checkpoint on a benchmark."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from core.grading.grader import process_grader
from core.settings.evaluation import Protocol
from core.types import Checkpoint, Spent
from orchestrator.evaluation.answering import answer_all
from orchestrator.evaluation.manifest import manifest_of
from orchestrator.question_sets.benchmarks import BenchmarkError, LoadedBenchmark
from orchestrator.question_sets.held_out import load_for
from orchestrator.serving.applications import engine_of
from orchestrator.stages.context import Context
from storage import queries
from storage.rows import EvaluationRow
from storage.texts import TextWriter, evaluation_path


def evaluate_on(context: Context, solver: Checkpoint, name: str, protocol: Protocol) -> int:
    """Evaluate a checkpoint that is being served on a benchmark; returns the number of questions.

    Raises `BenchmarkError` if the benchmark has changed since this evaluation began.
    """
    config = context.config
    benchmark = load_for(config, name)
    with context.write() as session:
        row = begin(session, context, solver, benchmark, protocol)
    begun_with = row.manifest["benchmark"]["sha256"]
    if begun_with != benchmark.sha256:
        raise BenchmarkError(
            f"benchmark {name}: it has changed since this evaluation began: expected questions with the sha256 "
            f"{begun_with}, got {benchmark.sha256}"
        )
    keeps_texts = config.rollout_text == "all"
    texts = TextWriter(evaluation_path(context.home.texts, row.id), context.refuse_lost) if keeps_texts else None
    answer_all(
        context.store,
        row,
        benchmark,
        protocol,
        config.seed,
        partial(context.replies_in_order, "solver", solver),
        process_grader(),
        context.batch_done,
        texts,
        write=context.write,
        charge=partial(charge, context),
    )
    return len(benchmark.items)


def begin(
    session: Session, context: Context, solver: Checkpoint, benchmark: LoadedBenchmark, protocol: Protocol
) -> EvaluationRow:
    """Store the evaluation of a run's checkpoint on a benchmark, or return the one that was begun, which goes on."""
    config = context.config
    identity, engine = {"checkpoint": solver.id, "sha256": solver.sha256}, engine_of(config.serving.applications)
    manifest = manifest_of(identity, engine, benchmark, protocol, config.seed)
    queries.evaluations.add_benchmark_items(session, benchmark.sha256, benchmark.items)
    names = {"model": solver.id, "checkpoint": solver.id, "run": context.run, "benchmark": benchmark.name}
    return queries.evaluations.begin_evaluation(session, **names, manifest=manifest)


def charge(context: Context, session: Session, spent: Spent) -> None:
    queries.usage.add_usage(session, context.key, "evaluation", spent)
