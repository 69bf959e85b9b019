"""The figures of an evaluation, made from the stored answers. Every interval is over questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean
from typing import Any

from sqlalchemy.orm import Session

from core.statistics.accuracy import Accuracy, accuracy_of, pass_at_1_by_level
from core.statistics.curves import CurvePoint, Tally, curve
from core.statistics.estimates import Estimate, mean_share
from core.types import GREEDY, BenchmarkItem, Evaluated, EvaluatedAnswer
from storage import queries
from storage.rows import EvaluationRow


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of one evaluation. If `samples` is 0, there are only greedy answers, and all figures are of them."""

    row: EvaluationRow
    questions: int  # that are answered
    samples: int
    accuracy: Accuracy
    curve: list[CurvePoint]
    vote_share: Estimate | None  # the mean share of votes that the majority has
    truncated: Estimate | None  # the mean share of answers that were cut off at the token limit
    unparsed: Estimate | None  # the mean share of replies without an answer
    mean_tokens: float  # of a reply
    tokens: int  # of all replies, greedy ones included
    by_level: dict[str, Estimate]  # pass@1
    by_subject: dict[str, Estimate]

    def as_json(self) -> dict[str, Any]:
        """The figures with their intervals, and the manifest."""
        row, accuracy = self.row, self.accuracy
        return {
            "id": row.id,
            "model": row.model,
            "benchmark": row.benchmark,
            "questions": self.questions,
            "samples": self.samples,
            "pass_at_1": accuracy.pass_at_1.as_json(),
            "greedy": accuracy.greedy.as_json(),
            "majority": accuracy.majority.as_json(),
            "pass_at_k": {str(point.k): point.pass_at_k.as_json() for point in self.curve},
            "maj_at_k": {str(point.k): point.maj_at_k.as_json() for point in self.curve},
            **{name: _json(getattr(self, name)) for name in ("vote_share", "truncated", "unparsed")},
            "mean_tokens": self.mean_tokens,
            "tokens": self.tokens,
            "seconds": row.seconds,
            "finished": row.finished_at is not None,
            "by_level": {level: estimate.as_json() for level, estimate in self.by_level.items()},
            "by_subject": {subject: estimate.as_json() for subject, estimate in self.by_subject.items()},
            "manifest": dict(row.manifest),
        }


def _json(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate.as_json()


def results_of(session: Session, key: str) -> Results | None:
    """The figures of the evaluation with this key; None before its first answer. Raises `NotThere`."""
    row = queries.evaluations.get_evaluation(session, key)
    results, answers = queries.evaluations.results_of(session, key), queries.evaluations.answers_of(session, key)
    accuracy = accuracy_of(results)
    if accuracy is None:
        return None
    items = queries.evaluations.benchmark_items(session, row.manifest["benchmark"]["sha256"])
    return figures(row, accuracy, results, answers, items)


def figures(
    row: EvaluationRow,
    accuracy: Accuracy,
    results: Sequence[Evaluated],
    answers: Sequence[EvaluatedAnswer],
    items: Iterable[BenchmarkItem],
) -> Results:
    """The figures from the stored rows; `answers` are in order of their items."""
    sampled = [answer for answer in answers if answer.sample_index != GREEDY]
    counted = sampled or answers
    groups = [[*group] for _, group in groupby(counted, lambda answer: answer.item_id)]

    def mean_of(holds: Callable[[EvaluatedAnswer], bool]) -> Estimate | None:
        return mean_share([fmean(map(holds, group)) for group in groups])

    subjects = {item.id: item.subject for item in items}
    return Results(
        row=row,
        questions=len(results),
        samples=len(groups[0]) if sampled else 0,
        accuracy=accuracy,
        curve=curve([tally_of(group) for group in groups]),
        vote_share=mean_of(lambda answer: answer.answer_class == 0) if sampled else None,
        truncated=mean_of(lambda answer: answer.finish_reason == "length"),
        unparsed=mean_of(lambda answer: answer.answer is None),
        mean_tokens=fmean(answer.tokens for answer in counted),
        tokens=sum(answer.tokens for answer in answers),
        by_level=pass_at_1_by_level(results),
        by_subject=pass_at_1_by_level([replace(result, level=subjects.get(result.item_id)) for result in results]),
    )


def tally_of(answers: Sequence[EvaluatedAnswer]) -> Tally:
    """The classes of the answers to one question. A class is right if an answer in it is."""
    classes: dict[int, list[bool]] = {}
    blank = 0
    for answer in answers:
        if answer.verdict is None:
            blank += 1
        else:  # a greedy answer has no class; it is then the only one
            classes.setdefault(answer.answer_class or 0, []).append(answer.verdict == "equal")
    return Tally(tuple((len(members), any(members)) for members in classes.values()), blank)
