"""Which questions the Solver learns from: verdicts, the band, and their statistics (R-Zero 2.3, D.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.types import LabelledQuestion, PseudoLabel, Question, Verdict

# p_hat and the band's edges are decimals in binary: 0.5 - 0.2 > 3/10. Steps of p_hat are 1/m, far above this.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class FilterStats:
    """What became of an iteration's candidates: how many got each verdict, and what the votes on them were like."""

    candidates: int
    kept: int
    too_easy: int
    too_hard: int
    no_majority: int
    malformed: int
    duplicate: int
    mean_p_hat: float | None  # over the questions asked; None when none was
    unparsed_share: float | None  # rollouts without an answer, of those asked for
    unknown: int  # comparisons that the grader could not decide


def filter_questions(questions: Sequence[Question], held_out: Iterable[str]) -> dict[str, Verdict]:
    """The verdicts, by question id, of those that are not to be asked; all others go on to the Solver.

    `malformed` has no text. `duplicate` repeats an earlier one of `questions`, or one of the benchmark's `held_out`
    texts, which no Solver may train on.
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


def judge(label: PseudoLabel, limits: tuple[float, float] | None) -> Verdict:
    """The verdict on an asked question (R-Zero 2.3): kept when `low <= p_hat <= high`, the edges included.

    Without an answer there is no majority to learn from. Without `limits` whatever has one is kept (Table 3).
    """
    if label.answer is None:
        return "no_majority"
    low, high = limits or (0.0, 1.0)
    if label.p_hat < low - TOLERANCE:
        return "too_hard"
    return "too_easy" if label.p_hat > high + TOLERANCE else "kept"


def easiest(scores: Sequence[float], share: float) -> list[int]:
    """The places of the `share` with the highest scores, at least one, in order of place; of equals the first.

    The curriculum of SRT 5.3: by the frequency of the majority answer, or by the pass rate, of a fixed model.
    """
    count = max(1, round(share * len(scores)))
    return sorted(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count])


def statistics(labelled: Sequence[LabelledQuestion]) -> FilterStats:
    """Count the verdicts of one iteration."""
    verdicts = Counter(question.verdict for question in labelled)
    labels = [question.label for question in labelled if question.label is not None]
    rollouts = sum(label.m for label in labels)
    return FilterStats(
        candidates=len(labelled),
        kept=verdicts["kept"],
        too_easy=verdicts["too_easy"],
        too_hard=verdicts["too_hard"],
        no_majority=verdicts["no_majority"],
        malformed=verdicts["malformed"],
        duplicate=verdicts["duplicate"],
        mean_p_hat=sum(label.p_hat for label in labels) / len(labels) if labels else None,
        unparsed_share=1 - sum(label.parsed for label in labels) / rollouts if rollouts else None,
        unknown=sum(label.unknown for label in labels),
    )


def normalised(text: str) -> str:
    """What two spellings of one question share: white space does not tell them apart, case does."""
    return " ".join(text.split())
