"""A stored evaluation of eight questions with four samples each, whose figures are easy to compute by hand."""

from __future__ import annotations

from pathlib import Path

from core.types import GREEDY, BenchmarkItem, Evaluated, EvaluatedAnswer
from storage import queries
from storage.session import Store
from storage.texts import RolloutText, TextWriter, evaluation_path

ODD = "<img src=x onerror=alert(1)>"  # a model's output, which the dashboard must escape
ITEMS = tuple(
    BenchmarkItem(f"sums/{i}", f"What is ${i} + {i}$?", str(2 * i), "easy" if i < 4 else "hard", f"subject {i % 2}")
    for i in range(8)
)


def store_evaluation(store: Store, texts: Path) -> str:
    """Store it; returns its key. Question i has 4 - i // 2 right samples; the others have no answer. The greedy answers
    of the first four questions are right."""
    manifest = {"benchmark": {"name": "sums", "sha256": "a" * 64, "questions": 8}, "engine": {"name": "openai"}}
    results, answers = list[Evaluated](), list[EvaluatedAnswer]()
    for i, item in enumerate(ITEMS):
        right = 4 - i // 2
        results.append(Evaluated(item.id, item.level, 4, right, i < 4, True))
        greedy = item.answer if i < 4 else ODD
        answers.append(EvaluatedAnswer(item.id, GREEDY, greedy, None, "equal" if i < 4 else "unequal", 9, "stop"))
        answers += [EvaluatedAnswer(item.id, j, item.answer, 0, "equal", 12, "stop") for j in range(right)]
        answers += [EvaluatedAnswer(item.id, j, None, None, None, 40, "length") for j in range(right, 4)]
    with store.write() as session:
        queries.evaluations.add_benchmark_items(session, "a" * 64, ITEMS)
        names = {"model": "http://10.0.0.7/v1#qwen3", "benchmark": "/data/sums.jsonl", "protocol": ["here"]}
        key = queries.evaluations.begin_evaluation(session, manifest=manifest, **names).id
        queries.evaluations.add_results(session, key, results, answers, seconds=75.0)
        queries.evaluations.finish_evaluation(session, key)
    writer = TextWriter(evaluation_path(texts, key))
    writer.add(0, [RolloutText(answer.item_id, answer.sample_index, f"so {ODD}") for answer in answers])
    writer.finish()
    return key
