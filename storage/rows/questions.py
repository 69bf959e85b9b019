"""Questions, their votes, and what oracles and people say about their labels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from core.types import (
    Denominator,
    FinishReason,
    OracleLabel,
    OracleVerdict,
    PseudoLabel,
    Question,
    Verdict,
)
from storage.rows.seeds import Seed


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """A `core.types.Rollout` without its text, which `storage.files.texts` keeps."""

    question_id: str
    sample_index: int
    answer: str | None
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None  # nats a token
    entropy_error: float | None
    checkpoint: str
    seed: Seed


@dataclass(frozen=True, slots=True)
class QuestionSummary:
    """A question as an entry of a list: without the Challenger's whole text and without the classes of its votes."""

    id: str
    run: str
    iteration: int
    index: int
    text: str | None
    checkpoint: str | None  # the Challenger that wrote it; None for a given prompt
    seed: Seed
    given_answer: str | None  # the true answer, if a given prompt came with one
    verdict: Verdict | None  # None: not labelled yet
    gate: str | None  # the gate that refused it
    answer: str | None  # this field and the next six are the pseudo-label; None if there is none
    votes: int | None
    m: int | None
    parsed: int | None
    unknown: int | None
    p_hat: float | None
    denominator: Denominator | None  # of p_hat: all votes, `m`, or those with an answer, `parsed`
    oracles: tuple[OracleLabel, ...]


@dataclass(frozen=True, slots=True)
class QuestionEntry:
    """A question with its label, verdict and oracle labels so far."""

    question: Question
    verdict: Verdict | None  # None: not labelled yet
    gate: str | None  # the gate that refused it
    label: PseudoLabel | None  # None also if the Solver was never asked
    oracles: tuple[OracleLabel, ...]


@dataclass(frozen=True, slots=True)
class AuditCount:
    """The number of pseudo-labels of one iteration and verdict that an oracle gave the verdict `oracle_verdict`."""

    iteration: int
    oracle: str
    verdict: Verdict
    oracle_verdict: OracleVerdict
    count: int


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A pseudo-label drawn for an oracle. `position`, from 0, is the order in which the oracle is asked."""

    question_id: str
    oracle: str
    run: str
    iteration: int
    stratum: str
    position: int


@dataclass(frozen=True, slots=True)
class AnnotationRow:
    """One person's verdict on a pseudo-label. `unknown`: the person skipped it."""

    question_id: str
    annotator: str
    verdict: OracleVerdict
    note: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class ClusterRow:
    question_id: str
    run: str
    iteration: int
    cluster: int  # 0 is the largest
    size: int
