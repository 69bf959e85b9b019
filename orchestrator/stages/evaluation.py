"""The evaluation of a run's checkpoint on a benchmark."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from core.grading.grader import process_grader
from core.settings.evaluation import Protocol
from core.types import Checkpoint, Spent
from orchestrator.evaluation.answering import answer_all
from orchestrator.evaluation.manifest import manifest_of
from orchestrator.question_sets.benchmarks import BenchmarkError
from orchestrator.question_sets.held_out import load_for
from orchestrator.serving.applications import engine_of
from orchestrator.stages.context import Context
from storage import queries
from storage.texts import TextWriter, evaluation_path


def evaluate_on(context: Context, solver: Checkpoint, name: str, protocol: Protocol) -> int:
    """Evaluate a checkpoint that is being served on a benchmark; returns the number of questions.

    Raises `BenchmarkError` if the benchmark has changed since this evaluation began.
    """
    config = context.config
    benchmark = load_for(config, name)
    identity = {"checkpoint": solver.id, "sha256": solver.sha256}
    engine = engine_of(config.serving.applications)
    manifest = manifest_of(identity, engine, benchmark, protocol, config.seed)
    with context.write() as session:
        queries.evaluations.add_benchmark_items(session, benchmark.sha256, benchmark.items)
        row = queries.evaluations.begin_evaluation(
            session, model=solver.id, checkpoint=solver.id, run=context.run, benchmark=name, manifest=manifest
        )
    begun_with = row.manifest["benchmark"]["sha256"]
    if begun_with != benchmark.sha256:
        raise BenchmarkError(
            f"benchmark {name}: it has changed since this evaluation began: expected questions with the sha256 "
            f"{begun_with}, got {benchmark.sha256}"
        )
    keeps_texts = config.rollout_text == "all"
    texts = TextWriter(evaluation_path(context.home.texts, row.id), context.refuse_lost) if keeps_texts else None
    ask = partial(context.replies_in_order, "solver", solver)
    grader, progress = process_grader(), context.batch_done

    def charge(session: Session, spent: Spent) -> None:
        queries.usage.add_usage(session, context.key, "evaluation", spent)

    answer_all(
        context.store,
        row,
        benchmark,
        protocol,
        config.seed,
        ask,
        grader,
        progress,
        texts,
        write=context.write,
        charge=charge,
    )
    return len(benchmark.items)
