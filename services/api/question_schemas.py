"""The API's answers about questions: a page of them, one with its votes, and statistics of their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from pydantic import BaseModel
from pydantic.dataclasses import dataclass

from core.questions.voting import agrees, classes_of
from core.statistics.estimates import Estimate
from core.types import PseudoLabel, Verdict
from storage.rows import AnnotationRow, ClusterRow, QuestionEntry, QuestionSummary, RolloutRow, TrainedOnRow

_OF_LABEL = ("answer", "votes", "m", "parsed", "unknown", "p_hat", "denominator")
_OF_QUESTION = ("id", "run", "iteration", "index", "text", "raw", "checkpoint", "seed")


class QuestionPage(BaseModel):
    items: list[QuestionSummary]
    next: str | None  # the `after` of the next page; null on the last page


class AnswerClass(BaseModel):
    answer: str  # of one of its votes
    votes: int


@dataclass(frozen=True)
class Vote(RolloutRow):
    """One rollout of the Solver."""

    in_class: int | None  # the index of its class in the question's `classes`; null: no answer, or it cannot be told
    agrees: bool | None  # whether it is a vote for the pseudo-label; null: it cannot be told

    @classmethod
    def all_of(cls, rows: Sequence[RolloutRow], label: PseudoLabel | None) -> list[Self]:
        """The votes of one question."""
        classes = classes_of([row.answer for row in rows], label.classes if label else ())
        return [
            cls(**asdict(row), in_class=in_class, agrees=agrees(row.answer, in_class))
            for row, in_class in zip(rows, classes, strict=True)
        ]


class Cluster(BaseModel):
    """Questions of an iteration that are alike, by BLEU."""

    number: int  # 0 is the largest
    size: int


@dataclass(frozen=True)
class QuestionDetail(QuestionSummary):
    """A question with every vote."""

    raw: str  # what the Challenger wrote
    classes: list[AnswerClass]
    rollouts: list[Vote]
    annotations: list[AnnotationRow]
    cluster: Cluster | None
    trained_on: list[TrainedOnRow]

    @classmethod
    def with_votes(
        cls,
        entry: QuestionEntry,
        votes: Sequence[RolloutRow],
        annotations: Sequence[AnnotationRow],
        cluster: ClusterRow | None,
        trained_on: Sequence[TrainedOnRow],
    ) -> Self:
        question, label = entry.question, entry.label
        known: dict[str, Any] = {name: getattr(question, name) for name in _OF_QUESTION}
        known |= {name: getattr(label, name, None) for name in _OF_LABEL}
        return cls(
            **known,
            verdict=entry.verdict,
            gate=entry.gate,
            oracles=entry.oracles,
            given_answer=question.answer,
            classes=[AnswerClass(answer=a, votes=n) for a, n in label.classes] if label else [],
            rollouts=Vote.all_of(votes, label),
            annotations=list(annotations),
            cluster=None if cluster is None else Cluster(number=cluster.cluster, size=cluster.size),
            trained_on=list(trained_on),
        )


class Bin(BaseModel):
    p_hat: float
    verdict: Verdict
    questions: int


class GateFigures(BaseModel):
    """What a gate did with the questions that it was handed."""

    candidates: int
    refused: int
    metrics: dict[str, float]


class Statistics(BaseModel):
    """What became of an iteration's questions; the histogram's bins are the shares that occur."""

    verdicts: dict[Verdict, int]
    gates: dict[str, GateFigures]  # in their order
    kept: Estimate | None
    mean_p_hat: float | None
    unparsed_share: float | None  # of the votes; no interval: those of one question are not independent
    histogram: list[Bin]
