"""Stored evaluations whose figures are easy to compute by hand: one of eight questions with four samples each, and one
with given answers to three questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.grading.grader import Grader
from core.types import GREEDY, BenchmarkItem, Evaluated, EvaluatedAnswer, JudgedAnswer, OracleVerdict
from orchestrator.evaluation.answering import graded
from services.inference.client import Reply
from storage import queries
from storage.files.texts import RolloutText, TextWriter, evaluation_path
from storage.session import Store

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


def store_recheck(store: Store, key: str, judge: str) -> None:
    """Store a judge's verdicts on all answers of `store_evaluation`. It contradicts the grader twice: it calls the true
    answer to the first question wrong, and the wrong greedy answer to the fifth right."""
    with store.write() as session:
        judged = list[JudgedAnswer]()
        for answer in queries.evaluations.answers_of(session, key):
            is_right = answer.verdict == "equal"
            if answer.item_id in ("sums/0", "sums/4") and answer.answer != "8":
                is_right = not is_right
            verdict: OracleVerdict = "right" if is_right else "wrong"
            if answer.answer is not None:
                judged.append(JudgedAnswer(answer.item_id, answer.sample_index, judge, verdict))
        queries.evaluations.add_judged(session, key, judged)


ABC = (
    BenchmarkItem("a", "p", "7", "1", "algebra"),
    BenchmarkItem("b", "q", "5", "2", "algebra"),
    BenchmarkItem("c", "r", "3", "2", None),
)


def _reply(answer: str) -> Reply:
    text = rf"\boxed{{{answer}}}" if answer else "hm"
    return Reply(text, 10 if answer else 40, "stop" if answer else "length", None, None, "m", 0)


def store_answers(store: Store, sampled: Sequence[Sequence[str]], greedy: Sequence[str], model: str = "m") -> str:
    """Store an evaluation on `ABC`; an answer of - is none. `sampled` has the answers to each item."""
    groups = [*sampled, *([answer] for answer in greedy)]
    replies = [[_reply(answer.strip("-")) for answer in group] for group in groups]
    with Grader() as grader, store.write() as session:
        manifest = {"benchmark": {"sha256": "s"}}
        row = queries.evaluations.begin_evaluation(session, model=model, benchmark="b", manifest=manifest)
        queries.evaluations.add_benchmark_items(session, "s", ABC)
        queries.evaluations.add_results(session, row.id, *graded(ABC, replies, grader), seconds=2.0)
    return row.id
