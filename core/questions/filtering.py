"""Which questions the Solver learns from: verdicts, the band, and their statistics (R-Zero 2.3, D.1)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.types import LabelledQuestion, PseudoLabel, Question, Verdict

# For comparing shares of votes with thresholds, since 0.5 - 0.2 > 3/10 in binary. Their steps, 1/m, are far larger.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class FilterStats:
    """How many of an iteration's candidates got each verdict, and figures of the votes on them."""

    candidates: int
    kept: int
    too_easy: int
    too_hard: int
    no_majority: int
    refused: int
    malformed: int
    duplicate: int
    mean_p_hat: float | None  # over the questions that were voted on; None if there are none
    unparsed_share: float | None  # share of the rollouts that have no answer
    unknown: int  # comparisons that the grader could not decide


def filter_questions(questions: Sequence[Question], held_out: Iterable[str]) -> dict[str, Verdict]:
    """Question id -> verdict, for the questions that the Solver is not asked.

    A `malformed` question has no text. A `duplicate` repeats an earlier one of `questions`, or one of the `held_out`
    texts of a benchmark, which no Solver may train on.
    """
    verdicts: dict[str, Verdict] = {}
    seen = {normalised(text) for text in held_out}
    for question in questions:
        if question.text is None:
            verdicts[question.id] = "malformed"
        elif (key := normalised(question.text)) in seen:
            verdicts[question.id] = "duplicate"
        else:
            seen.add(key)
    return verdicts


def band_verdict(label: PseudoLabel, limits: tuple[float, float] | None) -> Verdict:
    """The verdict on a question that was voted on (R-Zero 2.3): kept if `low <= p_hat <= high`.

    If no rollout has an answer, there is no majority to learn from. Without `limits`, every question with a majority is
    kept (Table 3).
    """
    if label.answer is None:
        return "no_majority"
    low, high = limits or (0.0, 1.0)
    if label.p_hat < low - TOLERANCE:
        return "too_hard"
    return "too_easy" if label.p_hat > high + TOLERANCE else "kept"


def is_firm(label: PseudoLabel, share: float, lead: float) -> bool:
    """Whether a label has at least `share` of all votes, and leads the second by more than `lead` (SCRL eq. 4)."""
    first, second, *_ = (*(votes / label.m for _, votes in label.classes), 0.0, 0.0)
    return first >= share - TOLERANCE and first - second > lead + TOLERANCE


def easiest(scores: Sequence[float], share: float) -> list[int]:
    """The indices, in ascending order, of the `share` with the highest scores. Of equals the first is taken.

    There is at least one. This is the curriculum of SRT 5.3, where the score is the frequency of the majority answer or
    the pass rate of a fixed model.
    """
    count = max(1, round(share * len(scores)))
    return sorted(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count])


def statistics(labelled: Sequence[LabelledQuestion]) -> FilterStats:
    """The statistics of one iteration's candidates."""
    verdicts = Counter(question.verdict for question in labelled)
    labels = [question.label for question in labelled if question.label is not None]
    rollouts = sum(label.m for label in labels)
    return FilterStats(
        candidates=len(labelled),
        kept=verdicts["kept"],
        too_easy=verdicts["too_easy"],
        too_hard=verdicts["too_hard"],
        no_majority=verdicts["no_majority"],
        refused=verdicts["refused"],
        malformed=verdicts["malformed"],
        duplicate=verdicts["duplicate"],
        mean_p_hat=sum(label.p_hat for label in labels) / len(labels) if labels else None,
        unparsed_share=1 - sum(label.parsed for label in labels) / rollouts if rollouts else None,
        unknown=sum(label.unknown for label in labels),
    )


def normalised(text: str) -> str:
    """The text with single spaces and without invisible characters. Questions that differ in these only are the same;
    case matters."""
    visible = text if text.isascii() else "".join(char for char in text if unicodedata.category(char) != "Cf")
    return " ".join(visible.split())
