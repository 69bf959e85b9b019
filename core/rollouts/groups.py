"""Making groups of rollouts for the methods: answers are put into classes and compared with labels, in one batch."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.grader import Grader
from core.questions.voting import classify_many
from core.types import Group


def make_groups(answers: Sequence[Sequence[str | None]], labels: Sequence[str | None], grader: Grader) -> list[Group]:
    """One group for the answers to each prompt and the label that came with it. The groups have no other signals.

    An answer does not agree with the label if the grader cannot decide whether they are equal.
    """
    classified = classify_many(answers, grader)
    pairs = [
        (answer, label)
        for group, label in zip(answers, labels, strict=True)
        if label is not None
        for answer in group
        if answer is not None
    ]
    equal = (comparison.verdict == "equal" for comparison in grader.compare_many(pairs))
    return [
        Group(
            answers=tuple(group),
            vote=vote,
            classes=classes,
            label=label,
            agrees=None if label is None else tuple(answer is not None and next(equal) for answer in group),
        )
        for group, label, (vote, classes) in zip(answers, labels, classified, strict=True)
    ]
