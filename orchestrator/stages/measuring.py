"""The stage `evaluate`: it measures and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.answers import extract_boxed
from core.config import Sampling
from core.grading import Grader
from core.prompts import solver_messages
from core.seeds import seed_for
from core.types import BenchmarkItem, Checkpoint, Evaluated
from core.voting import vote
from orchestrator.held_out import load_benchmark
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import BATCH, Context
from services.inference.client import Reply
from services.inference.engine import Prompt
from storage import queries


def evaluate(context: Context) -> LastWrite:
    """S(t) on the held-out benchmark, and on what early stopping goes by: `samples` at the sampling temperature, and
    one greedy (R-Zero D.2)."""
    solver, stopping = context.checkpoint("solver", context.iteration), context.config.early_stopping
    names = [context.config.evaluation.benchmark]
    names += [stopping.benchmark] if stopping and stopping.benchmark not in names else []
    with context.serving({"solver": solver}), Grader() as grader:
        counts = [_evaluate_on(context, solver, name, grader) for name in names]
    return lambda _session: {"checkpoint": solver.id, "items": sum(counts)}


def _evaluate_on(context: Context, solver: Checkpoint, benchmark: str, grader: Grader) -> int:
    items = load_benchmark(benchmark)
    with context.store.read() as session:
        done = {row.item_id for row in queries.evaluations_of(session, solver.id, benchmark)}
    whole = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
    parts = [part for part in whole if not all(item.id in done for item in part)]
    context.progress(len(items) - sum(map(len, parts)), len(items), "benchmark questions")
    prompts = (_prompts(context, benchmark, part) for part in parts)
    with context.asked_in_turn("solver", solver, prompts) as answered:
        for part, replies in zip(parts, answered, strict=True):
            graded = [*_graded(part, replies, grader)]
            with context.store.write() as session:
                queries.add_evaluations(session, checkpoint=solver.id, benchmark=benchmark, items=graded)
            context.progress(items.index(part[-1]) + 1, len(items), "benchmark questions")
    return len(items)


def _prompts(context: Context, benchmark: str, items: Sequence[BenchmarkItem]) -> list[Prompt]:
    """All items at the sampling temperature, then all greedy."""
    settings = context.config.evaluation
    greedy = Sampling(temperature=0, max_tokens=settings.sampling.max_tokens)
    return [
        Prompt(
            tuple(solver_messages(item.problem)),
            # the same draws for every checkpoint, so that differences between them are paired
            seed_for(context.config.seed, "evaluate", benchmark, item.id),
            1 if sampling is greedy else settings.samples,
            sampling,
        )
        for sampling in (settings.sampling, greedy)
        for item in items
    ]


def _graded(items: Sequence[BenchmarkItem], replies: Sequence[Sequence[Reply]], grader: Grader) -> Iterator[Evaluated]:
    for item, sampled, single in zip(items, replies[: len(items)], replies[len(items) :], strict=True):
        answers = [extract_boxed(reply.text) for reply in sampled]

        def right(answer: str | None, truth: str = item.answer) -> bool:
            return answer is not None and grader.compare(answer, truth).verdict == "equal"

        yield Evaluated(
            item_id=item.id,
            level=item.level,
            samples=len(answers),
            correct=sum(map(right, answers)),
            greedy_correct=right(extract_boxed(single[0].text)),
            majority_correct=right(vote(answers, grader).answer),
        )
