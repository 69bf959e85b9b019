"""Making groups of rollouts for the methods: answers are put into classes and compared with labels."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.grader import Grader
from core.questions.voting import classify_many
from core.types import EqualityVerdict, Group

_AGREES: dict[EqualityVerdict, bool | None] = {"equal": True, "unequal": False, "unknown": None}


def make_groups(answers: Sequence[Sequence[str | None]], labels: Sequence[str | None], grader: Grader) -> list[Group]:
    """One group for the answers to each prompt and the label that came with it. The groups have no other signals."""
    classified, agreeing = classify_many(answers, grader), agreements(answers, labels, grader)
    return [
        Group(answers=tuple(group), vote=vote, classes=classes, label=label, agrees=agrees)
        for group, label, (vote, classes), agrees in zip(answers, labels, classified, agreeing, strict=True)
    ]


def agreements(
    answers: Sequence[Sequence[str | None]], labels: Sequence[str | None], grader: Grader
) -> list[tuple[bool | None, ...] | None]:
    """Whether each of the answers (G,) to a prompt agrees with the prompt's label; None for a prompt without a label.

    A rollout without an answer does not agree. If the grader cannot decide whether an answer equals the label, its
    entry is None. All comparisons are graded in one batch.
    """
    pairs = [
        (answer, label)
        for group, label in zip(answers, labels, strict=True)
        if label is not None
        for answer in group
        if answer is not None
    ]
    agree = (_AGREES[comparison.verdict] for comparison in grader.compare_many(pairs))
    return [
        None if label is None else tuple(answer is not None and next(agree) for answer in group)
        for group, label in zip(answers, labels, strict=True)
    ]
