"""The stage `evaluate`: it measures and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.answers import extract_boxed
from core.grading.grader import Grader, process_grader
from core.questions.prompts import solver_messages
from core.questions.voting import vote_many
from core.seeds import seed_for
from core.settings.config import CoEvolution
from core.settings.training import Sampling
from core.types import BenchmarkItem, Checkpoint, Evaluated
from orchestrator.ledger import LastWrite
from orchestrator.question_sets.held_out import load_benchmark
from orchestrator.stages.context import BATCH, Context
from services.inference.client import Reply
from services.inference.engines.base import Prompt
from storage import queries


def evaluate(context: Context) -> LastWrite:
    """S(t) on the held-out benchmark, and on what early stopping goes by: `samples` at the sampling temperature, and
    one greedy (R-Zero D.2)."""
    solver, stopping = context.checkpoint("solver", context.iteration), context.config.early_stopping
    names = [context.config.evaluation.benchmark]
    names += [stopping.benchmark] if stopping and stopping.benchmark not in names else []
    another = isinstance(context.config, CoEvolution) and context.iteration < context.config.iterations
    soon = {"challenger": context.checkpoint("challenger", context.iteration)} if another else {}
    with context.serving({"solver": solver}, soon=soon):
        counts = [_evaluate_on(context, solver, name) for name in names]
    return lambda _session: {"checkpoint": solver.id, "items": sum(counts)}


def _evaluate_on(context: Context, solver: Checkpoint, benchmark: str) -> int:
    items = load_benchmark(benchmark)
    with context.store.read() as session:
        done = {row.item_id for row in queries.figures.evaluations_of(session, solver.id, benchmark)}
    whole = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
    parts = [part for part in whole if not all(item.id in done for item in part)]
    context.progress(len(items) - sum(map(len, parts)), len(items), "benchmark questions")
    prompts = (_prompts(context, benchmark, part) for part in parts)
    with context.asked_in_turn("solver", solver, prompts) as answered:
        for part, replies in zip(parts, answered, strict=True):
            evaluated = graded(part, replies, process_grader())
            with context.store.write() as session:
                queries.figures.add_evaluations(session, checkpoint=solver.id, benchmark=benchmark, items=evaluated)
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


def graded(items: Sequence[BenchmarkItem], replies: Sequence[Sequence[Reply]], grader: Grader) -> list[Evaluated]:
    """What each item's answers come to. `replies` are those to all items' samples, then those to all items greedily."""
    answers = [[extract_boxed(reply.text) for reply in group] for group in replies]
    sampled, greedy = answers[: len(items)], answers[len(items) :]
    majority = [[label.answer] for label in vote_many(sampled, grader)]
    right = _right([*sampled, *greedy, *majority], [item.answer for item in items] * 3, grader)
    by_item = zip(
        items, *(right[start : start + len(items)] for start in range(0, len(right), len(items))), strict=True
    )
    return [
        Evaluated(item.id, item.level, len(of_samples), sum(of_samples), of_greedy, of_majority)
        for item, of_samples, [of_greedy], [of_majority] in by_item
    ]


def _right(groups: Sequence[Sequence[str | None]], truths: Sequence[str], grader: Grader) -> list[list[bool]]:
    """Whether each answer of groups[i] equals truths[i], all graded in one batch. No answer is wrong."""
    pairs = [
        (answer, truth) for group, truth in zip(groups, truths, strict=True) for answer in group if answer is not None
    ]
    equal = iter(comparison.verdict == "equal" for comparison in grader.compare_many(pairs))
    return [[answer is not None and next(equal) for answer in group] for group in groups]
