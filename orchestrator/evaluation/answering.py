"""Asks a model the questions of a benchmark, grades its answers, and stores both batch by batch.

An evaluation that was cut off goes on after its last batch. A prompt's seed derives from the evaluation's seed, the
benchmark and the question, so it is the same for every model: differences between models are paired.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from sqlalchemy.orm import Session

from core.grading.grader import Grader
from core.grading.kinds import AnswerKind, compare_many, read_answer
from core.questions.voting import classify_many
from core.seeds import seed_for
from core.settings.evaluation import Protocol
from core.settings.training import Sampling
from core.types import GREEDY, BenchmarkItem, Evaluated, EvaluatedAnswer, FinishReason, Spent
from orchestrator.question_sets.benchmarks import LoadedBenchmark
from orchestrator.run import BATCH, Progress
from services.inference.client import Reply, spent
from services.inference.engines.base import Prompt
from storage import queries
from storage.files.texts import RolloutText, TextWriter
from storage.rows import EvaluationRow
from storage.session import Store

# Questions per transaction of an evaluation that no run makes: an interruption must not cost a slow model hours.
SMALL_BATCH = 8

Batches = Iterable[Sequence[Prompt]]
# Sends batches of prompts to a model; the replies come in the order of the batches.
Ask = Callable[[Batches], AbstractContextManager[Iterator[list[list[Reply]]]]]
Charge = Callable[[Session, Spent], None]
Write = Callable[[], AbstractContextManager[Session]]  # a transaction, such as `Store.write`


def answer_all(
    store: Store,
    row: EvaluationRow,
    benchmark: LoadedBenchmark,
    protocol: Protocol,
    seed: int,
    ask: Ask,
    grader: Grader,
    progress: Progress,
    texts: TextWriter | None = None,
    size: int = BATCH,
    write: Write | None = None,
    charge: Charge | None = None,
) -> None:
    """Ask the questions of a benchmark that have no stored answers, and store the answers and their verdicts.

    `size` questions are stored at a time. `texts` keeps the whole replies, if they shall be kept. `charge` is called in
    the transaction of each batch with what the batch took. `write` begins these transactions, by default `store.write`.
    Raises `InferenceError` and `GradingError`; what was answered before stays stored.
    """
    items, write = benchmark.items, write or store.write
    with store.read() as session:
        done = {result.item_id for result in queries.evaluations.results_of(session, row.id)}
    batches = [(number, items[start : start + size]) for number, start in enumerate(range(0, len(items), size))]
    greedy: bool = row.manifest.get("decoding", {}).get("greedy", True)  # what it was begun with
    remaining = [(number, batch) for number, batch in batches if not all(item.id in done for item in batch)]
    answered, what = len(items) - sum(len(batch) for _, batch in remaining), f"questions of {benchmark.name}"
    progress(answered, len(items), what)
    template = benchmark.definition.template
    ways = [(protocol.sampling, protocol.samples)] if protocol.samples else []
    ways += [(Sampling(temperature=0, max_tokens=protocol.sampling.max_tokens), 1)] if greedy else []

    def prompts_of(batch: Sequence[BenchmarkItem]) -> list[Prompt]:
        """The prompts of all items at the sampling temperature, if any, then the greedy prompts of all, if any."""
        return [
            Prompt(tuple(template.messages(item.problem)), seed_for(seed, "evaluate", benchmark.name, item.id), n, how)
            for how, n in ways
            for item in batch
        ]

    prompts = (prompts_of(batch) for _, batch in remaining)
    with ask(prompts) as replies_of_batches:
        begun = time.monotonic()
        for (number, batch), replies in zip(remaining, replies_of_batches, strict=True):
            results, answers = graded(batch, replies, grader, benchmark.definition.answers, greedy)
            if texts is not None:
                whole = list[RolloutText]()
                for i, group in enumerate(replies):
                    is_greedy = greedy and i >= len(replies) - len(batch)
                    whole += [
                        RolloutText(batch[i % len(batch)].id, GREEDY if is_greedy else j, reply.text)
                        for j, reply in enumerate(group)
                    ]
                texts.add(number, whole)
            with write() as session:
                seconds = time.monotonic() - begun
                queries.evaluations.add_results(session, row.id, results, answers, seconds=seconds)
                if charge is not None:
                    charge(session, spent(replies))
            begun, answered = time.monotonic(), answered + len(batch)
            progress(answered, len(items), what)
    if texts is not None:
        texts.finish()
    if row.finished_at is None or remaining:
        with write() as session:
            queries.evaluations.finish_evaluation(session, row.id)


def graded(
    items: Sequence[BenchmarkItem],
    replies: Sequence[Sequence[Reply]],
    grader: Grader,
    kind: AnswerKind = "math",
    asked_greedily: bool = True,
) -> tuple[list[Evaluated], list[EvaluatedAnswer]]:
    """Grade the answers in `replies`, which are in the order of the groups of `count`."""
    groups = [
        [Given(read_answer(kind, reply.text), reply.tokens, reply.finish_reason) for reply in group]
        for group in replies
    ]
    return count(items, groups, grader, kind, asked_greedily)


class Given(NamedTuple):
    """An answer as a model gave it, before it is graded."""

    answer: str | None
    tokens: int
    finish_reason: FinishReason


def count(
    items: Sequence[BenchmarkItem],
    groups: Sequence[Sequence[Given]],
    grader: Grader,
    kind: AnswerKind,
    asked_greedily: bool,
) -> tuple[list[Evaluated], list[EvaluatedAnswer]]:
    """Grade the answers to each item, and count the right ones. `groups` has the sampled answers to all items, if any,
    then their greedy ones, if they were asked greedily.

    Without samples, the greedy answer counts as the only sample.
    """
    answers = [[given.answer for given in group] for group in groups]
    n, of_greedy = len(items), len(groups) - len(items) if asked_greedily else len(groups)
    votes = classify_many(answers[:n], grader if kind == "math" else None)
    of_majority = [[label.answer] for label, _ in votes]
    truths = [item.answer for item in items] * (len(groups) // n + 1)
    # Whether each answer of a group equals its truth, all graded in one batch; None where there is no answer.
    with_truths = [*zip([*answers, *of_majority], truths, strict=True)]
    pairs = [(answer, truth) for group, truth in with_truths for answer in group if answer is not None]
    of_pairs = iter(compare_many(kind, pairs, grader))
    verdicts = [[None if answer is None else next(of_pairs) for answer in group] for group, _ in with_truths]
    results, rows = list[Evaluated](), list[EvaluatedAnswer]()
    for i, item in enumerate(items):
        sampled = [verdict == "equal" for verdict in verdicts[i]]
        greedy = verdicts[of_greedy + i][0] == "equal" if asked_greedily else None
        majority = verdicts[len(groups) + i][0] == "equal"
        results.append(Evaluated(item.id, item.level, len(sampled), sum(sampled), greedy, majority))
    for i, group in enumerate(groups):
        is_greedy = i >= of_greedy
        indices = [GREEDY] if is_greedy else range(len(group))
        classes = (None,) if is_greedy else votes[i][1]
        for index, given, answer_class, verdict in zip(indices, group, classes, verdicts[i], strict=True):
            of_answer = (given.answer, answer_class, verdict, given.tokens, given.finish_reason)
            rows.append(EvaluatedAnswer(items[i % n].id, index, *of_answer))
    return results, rows
