"""The evaluation of a checkpoint on a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.answers import extract_boxed
from core.grading.grader import Grader, process_grader
from core.questions.prompts import solver_messages
from core.questions.voting import vote_many
from core.seeds import seed_for
from core.settings.training import Sampling
from core.types import BenchmarkItem, Checkpoint, Evaluated
from orchestrator.question_sets.held_out import load_benchmark
from orchestrator.stages.context import BATCH, Context
from services.inference.client import Reply
from services.inference.engines.base import Prompt
from storage import queries


def evaluate_on(context: Context, solver: Checkpoint, benchmark: str) -> int:
    items = load_benchmark(benchmark)
    with context.store.read() as session:
        done = {row.item_id for row in queries.figures.evaluations_of(session, solver.id, benchmark)}
    batches = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
    remaining = [batch for batch in batches if not all(item.id in done for item in batch)]
    context.progress(len(items) - sum(map(len, remaining)), len(items), "benchmark questions")
    prompts = (_prompts(context, benchmark, batch) for batch in remaining)
    with context.replies_in_order("solver", solver, prompts) as replies_of_batches:
        for batch, replies in zip(remaining, replies_of_batches, strict=True):
            evaluated = graded(batch, replies, process_grader())
            with context.store.write() as session:
                queries.figures.add_evaluations(session, checkpoint=solver.id, benchmark=benchmark, items=evaluated)
            context.progress(items.index(batch[-1]) + 1, len(items), "benchmark questions")
    return len(items)


def _prompts(context: Context, benchmark: str, items: Sequence[BenchmarkItem]) -> list[Prompt]:
    """The prompts of all items at the sampling temperature, then the greedy prompts of all items."""
    settings = context.config.evaluation
    greedy = Sampling(temperature=0, max_tokens=settings.sampling.max_tokens)
    return [
        Prompt(
            tuple(solver_messages(item.problem)),
            # The seed is the same for every checkpoint, so that differences between checkpoints are paired.
            seed_for(context.config.seed, "evaluate", benchmark, item.id),
            1 if sampling is greedy else settings.samples,
            sampling,
        )
        for sampling in (settings.sampling, greedy)
        for item in items
    ]


def graded(items: Sequence[BenchmarkItem], replies: Sequence[Sequence[Reply]], grader: Grader) -> list[Evaluated]:
    """Grade the answers to each item. `replies` has the sampled replies of all items, then their greedy replies."""
    answers = [[extract_boxed(reply.text) for reply in group] for group in replies]
    sampled, greedy = answers[: len(items)], answers[len(items) :]
    majority = [[label.answer] for label in vote_many(sampled, grader)]
    right = _right([*sampled, *greedy, *majority], [item.answer for item in items] * 3, grader)
    by_item = zip(
        items, *(right[start : start + len(items)] for start in range(0, len(right), len(items))), strict=True
    )
    return [
        Evaluated(item.id, item.level, len(samples_right), sum(samples_right), greedy_right, majority_right)
        for item, samples_right, [greedy_right], [majority_right] in by_item
    ]


def _right(groups: Sequence[Sequence[str | None]], truths: Sequence[str], grader: Grader) -> list[list[bool]]:
    """Whether each answer of groups[i] equals truths[i], all graded in one batch. A missing answer counts as wrong."""
    pairs = [
        (answer, truth) for group, truth in zip(groups, truths, strict=True) for answer in group if answer is not None
    ]
    equal = iter(comparison.verdict == "equal" for comparison in grader.compare_many(pairs))
    return [[answer is not None and next(equal) for answer in group] for group in groups]
