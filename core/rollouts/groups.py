"""Groups of rollouts as the methods see them: answers classed and compared with labels, all in one batch."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.grader import Grader
from core.questions.voting import classify_many
from core.types import Group


def make_groups(answers: Sequence[Sequence[str | None]], labels: Sequence[str | None], grader: Grader) -> list[Group]:
    """One group for each prompt's answers and the label that it came with, without any other signal.

    An answer that the grader cannot tell from the label does not agree with it.
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
