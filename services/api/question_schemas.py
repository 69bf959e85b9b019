"""What the API answers with about questions: lists of them, one with its votes, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict

from core.questions.voting import classes_of
from core.statistics.estimates import Estimate
from core.types import Denominator, FinishReason, OracleVerdict, PseudoLabel, Verdict
from storage.rows import AnnotationRow, ClusterRow, QuestionEntry, RolloutRow, TrainedOnRow


class AuditVerdict(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    oracle: str
    verdict: OracleVerdict
    truth: str | None


_OF_QUESTION = ("id", "run", "iteration", "index", "text", "raw", "checkpoint", "seed")
_OF_LABEL = ("answer", "votes", "m", "parsed", "unknown", "p_hat", "denominator")


class Question(BaseModel):
    """A question, its pseudo-label and verdict; what is not known yet, or never will be, is null."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    run: str
    iteration: int
    index: int
    text: str | None
    verdict: Verdict | None
    answer: str | None
    votes: int | None
    m: int | None
    parsed: int | None
    p_hat: float | None
    denominator: Denominator | None  # p_hat is votes by `m` where it is all, and by `parsed` where it is parsed
    oracles: list[AuditVerdict]


class QuestionPage(BaseModel):
    items: list[Question]
    next: str | None  # the `after` of the next page; none after the last


class AnswerClass(BaseModel):
    answer: str  # of one of its votes
    votes: int


class Vote(BaseModel):
    """One rollout of the Solver."""

    model_config = ConfigDict(from_attributes=True)

    sample_index: int
    answer: str | None
    in_class: int | None = None  # the place in the question's `classes`; null: it has none, or it cannot be told
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None  # nats a token
    entropy_error: float | None  # the exact one is within mean_entropy -+ this
    checkpoint: str
    seed: int

    @classmethod
    def all_of(cls, votes: Sequence[RolloutRow], label: PseudoLabel | None) -> list[Self]:
        """Those of one question."""
        places = classes_of([vote.answer for vote in votes], label.classes if label else ())
        schemas = [cls.model_validate(vote) for vote in votes]
        return [vote.model_copy(update={"in_class": index}) for vote, index in zip(schemas, places, strict=True)]


class Annotation(BaseModel):
    """What one person said of the pseudo-label; `unknown` is skipped."""

    model_config = ConfigDict(from_attributes=True)

    annotator: str
    verdict: OracleVerdict
    note: str
    made_at: datetime


class Cluster(BaseModel):
    """Questions of an iteration that are alike, by BLEU."""

    number: int  # 0 is the largest
    size: int


class TrainedOn(BaseModel):
    """A checkpoint that learned from a question."""

    checkpoint: str
    steps: list[int]  # of its training


class QuestionDetail(Question):
    """A question with every vote."""

    raw: str  # what the Challenger wrote
    checkpoint: str | None  # that wrote it; null for a given prompt
    seed: int
    given_answer: str | None  # that a given prompt came with
    unknown: int | None  # comparisons of answers that could not be decided
    classes: list[AnswerClass]
    rollouts: list[Vote]
    annotations: list[Annotation]
    cluster: Cluster | None
    trained_on: list[TrainedOn]

    @classmethod
    def with_votes(
        cls,
        entry: QuestionEntry,
        votes: Sequence[RolloutRow],
        said: Sequence[AnnotationRow],
        cluster: ClusterRow | None,
        trained_on: Sequence[TrainedOnRow],
    ) -> Self:
        asked, label = entry.question, entry.label
        return cls(
            **{name: getattr(asked, name) for name in _OF_QUESTION},
            **{name: getattr(label, name, None) for name in _OF_LABEL},
            verdict=entry.verdict,
            oracles=[AuditVerdict.model_validate(label) for label in entry.oracles],
            given_answer=asked.answer,
            classes=[AnswerClass(answer=a, votes=n) for a, n in label.classes] if label else [],
            rollouts=Vote.all_of(votes, label),
            annotations=[Annotation.model_validate(row) for row in said],
            cluster=None if cluster is None else Cluster(number=cluster.cluster, size=cluster.size),
            trained_on=[TrainedOn(checkpoint=row.checkpoint, steps=row.steps) for row in trained_on],
        )


class Bin(BaseModel):
    p_hat: float
    verdict: Verdict
    questions: int


class Statistics(BaseModel):
    """What became of an iteration's questions; the histogram's bins are the shares that occur."""

    verdicts: dict[Verdict, int]
    kept: Estimate | None
    mean_p_hat: float | None
    unparsed_share: float | None  # of the votes; no interval: those of one question are not independent
    histogram: list[Bin]
