"""Stored evaluations of models on benchmarks, as `coevo evaluate` stores them, from the answers that a test gives."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager

from core.settings.evaluation import Benchmark, Protocol
from core.types import GREEDY, BenchmarkItem, Evaluated, EvaluatedAnswer
from orchestrator.evaluation.answering import Ask
from orchestrator.evaluation.manifest import begin
from orchestrator.evaluation.models import Model
from orchestrator.question_sets.benchmarks import LoadedBenchmark
from storage import queries
from storage.session import Store


def store_answers_of(
    store: Store,
    model: str,
    benchmark: str,
    sampled: Sequence[str],
    greedy: str = "",
    protocol: Protocol | None = None,
    checkpoint: str | None = None,
    finish: bool = True,
) -> str:
    """Store an evaluation; returns its key. `sampled` has a word for each question, with a letter for each answer: R is
    the right one, a blank is none, and any other letter a wrong one. `greedy` has the letter of each greedy answer; by
    default it is the first sampled one. The benchmark's sha256 depends on its name and the number of questions.
    """
    greedy = greedy or "".join(word[0] for word in sampled)
    items = tuple(BenchmarkItem(f"{benchmark}/{i}", "?", "R") for i in range(len(greedy)))
    sha256 = hashlib.sha256(f"{benchmark} {len(items)}".encode()).hexdigest()
    loaded = LoadedBenchmark(benchmark, Benchmark(title="", source=""), items, sha256)
    protocol = protocol or Protocol(samples=len(sampled[0]) if sampled else 0)
    named = Model(model, {"name": model}, {"name": "openai"}, _not_served, checkpoint)
    with store.write() as session:
        row = begin(session, named, loaded, protocol, 0)
        for item, word, letter in zip(items, sampled or greedy, greedy, strict=True):
            votes = {letter: (word.count(letter), -word.index(letter)) for letter in word if letter != " "}
            classes = sorted(votes, key=lambda letter: votes[letter], reverse=True)
            answers = [
                _answer(item, j, letter, classes.index(letter) if letter in classes else None)
                for j, letter in enumerate(word)
            ]
            majority = classes[:1] == ["R"]
            result = Evaluated(item.id, None, len(word), word.count("R"), letter == "R", majority)
            queries.evaluations.add_results(
                session, row.id, [result], [*(answers if sampled else []), _answer(item, GREEDY, letter, None)]
            )
        if finish:
            queries.evaluations.finish_evaluation(session, row.id)
    return row.id


def _not_served(_waiting: object) -> AbstractContextManager[Ask]:
    raise AssertionError("a stored evaluation asks no model")


def _answer(item: BenchmarkItem, index: int, letter: str, answer_class: int | None) -> EvaluatedAnswer:
    verdict = None if letter == " " else "equal" if letter == "R" else "unequal"
    return EvaluatedAnswer(item.id, index, letter.strip() or None, answer_class, verdict, 5, "stop")
