"""Majority vote over a group's answers (R-Zero 2.2). Equal answers vote together; their order does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from core.grading.answers import answer_key, normalise
from core.grading.grader import Grader, Pair
from core.grading.quantities import parse_number
from core.types import Denominator, PseudoLabel

Verdicts = dict[Pair, str]  # (smaller key, larger key) -> verdict
Classes = tuple[int | None, ...]


def vote(answers: Sequence[str | None], grader: Grader | None, denominator: Denominator = "all") -> PseudoLabel:
    """The pseudo-label of one group of m answers, where None stands for a rollout without one. See `vote_many`."""
    return vote_many([answers], grader, denominator)[0]


def vote_many(
    groups: Sequence[Sequence[str | None]], grader: Grader | None, denominator: Denominator = "all"
) -> list[PseudoLabel]:
    """The pseudo-labels of many groups. See `classify_many`."""
    return [label for label, _ in classify_many(groups, grader, denominator)]


def classify_many(
    groups: Sequence[Sequence[str | None]], grader: Grader | None, denominator: Denominator = "all"
) -> list[tuple[PseudoLabel, Classes]]:
    """The pseudo-labels of many groups and the class of each answer. All comparisons are graded in one batch.

    The class of an answer is an index in the label's `classes`, where 0 is the majority, or None if it did not vote.

    Answers that share a key are one class. With a grader, classes are then merged, from the most votes down and by key
    among equals, if all their members are pairwise equal (complete linkage, since grading is not transitive). An
    unknown comparison merges nothing and is counted. Without a grader, only keys decide.

    The label is the class with the most votes; in a tie, the one with the smallest key. It is spelled as most of its
    rollouts spelled it, with the smallest spelling among equals. A blank answer counts as none. `p_hat` is votes / m
    for denominator "all", votes / parsed for "parsed", and 0 if there are no votes.
    """
    tallies = list[dict[str, Counter[str]]]()  # of each group: key -> normalised spelling -> votes
    for answers in groups:
        tally: dict[str, Counter[str]] = {}
        for answer in answers:
            if answer is not None and (key := answer_key(answer)):
                tally.setdefault(key, Counter())[normalise(answer)] += 1
        tallies.append(tally)
    verdicts: Verdicts = {}
    if grader:  # every two keys of a group, except two numbers, which are unequal because their keys differ
        pairs = {pair for tally in tallies for pair in combinations(sorted(tally), 2) if not all(map(_is_number, pair))}
        comparisons = grader.compare_many(sorted(pairs))
        verdicts = dict(zip(sorted(pairs), (comparison.verdict for comparison in comparisons), strict=True))
    return [_label(answers, tally, verdicts, denominator) for answers, tally in zip(groups, tallies, strict=True)]


@lru_cache(maxsize=65_536)
def _is_number(key: str) -> bool:
    return parse_number(key) is not None


def _label(
    answers: Sequence[str | None], tally: dict[str, Counter[str]], verdicts: Verdicts, denominator: Denominator
) -> tuple[PseudoLabel, Classes]:
    votes = {key: spellings.total() for key, spellings in tally.items()}
    # Each key is put into the first class all of whose members it equals, or into a new one.
    merged: list[list[str]] = []
    for key in sorted(votes, key=lambda key: (-votes[key], key)):
        for members in merged:
            if all(verdicts.get((min(key, other), max(key, other))) == "equal" for other in members):
                members.append(key)
                break
        else:
            merged.append([key])
    merged.sort(key=lambda members: (-sum(votes[key] for key in members), min(members)))
    spellings = [sum((tally[key] for key in members), Counter[str]()) for members in merged]
    classes = tuple(
        (min(counts.items(), key=lambda item: (-item[1], item[0]))[0], counts.total()) for counts in spellings
    )
    parsed = sum(votes.values())
    answer, top = classes[0] if classes else (None, 0)
    label = PseudoLabel(
        answer=answer,
        votes=top,
        m=len(answers),
        parsed=parsed,
        unknown=sum(verdicts.get(pair) == "unknown" for pair in combinations(sorted(votes), 2)),
        p_hat=top / (len(answers) if denominator == "all" else parsed) if top else 0.0,
        denominator=denominator,
        classes=classes,
    )
    class_of = {key: i for i, members in enumerate(merged) for key in members}
    return label, tuple(None if answer is None else class_of.get(answer_key(answer)) for answer in answers)


def classes_of(answers: Sequence[str | None], classes: Sequence[tuple[str, int]]) -> Classes:
    """The index in a stored label's `classes` of the class of each answer, without grading again.

    An answer that has the key of a class's spelling is in that class. Any other key is in the class that has room for
    its votes, if there is only one such class. The index is None if the answer did not vote or its class is not clear.
    """
    keys = [None if answer is None else answer_key(answer) for answer in answers]
    votes = Counter(key for key in keys if key)
    class_of = {key: i for i, (spelling, _) in enumerate(classes) if (key := answer_key(spelling)) in votes}
    room = [count for _, count in classes]
    for key, i in class_of.items():
        room[i] -= votes[key]
    unplaced, before = votes.keys() - class_of.keys(), -1
    while len(unplaced) != before:  # a key that was placed takes room, so that another one may fit in one class only
        before = len(unplaced)
        for key in sorted(unplaced):
            fits = [i for i, left in enumerate(room) if left >= votes[key]]
            if len(fits) == 1:
                class_of[key] = fits[0]
                room[fits[0]] -= votes[key]
                unplaced.remove(key)
    return tuple(None if key is None else class_of.get(key) for key in keys)


def agrees(answer: str | None, in_class: int | None) -> bool | None:
    """Whether a vote is one for the pseudo-label, by the class that `classes_of` has for it. A vote without an answer
    is not. None if the class is not clear."""
    if in_class is None and answer is not None and answer_key(answer):
        return None
    return in_class == 0
