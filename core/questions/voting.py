"""Majority vote over a group's answers (R-Zero 2.2): equal answers vote together, in whatever order they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations

from core.grading.answers import answer_key, normalise
from core.grading.grader import Grader, Pair
from core.grading.quantities import parse_number
from core.types import Denominator, PseudoLabel

Verdicts = dict[Pair, str]  # by keys in ascending order
Classes = tuple[int | None, ...]


def vote(answers: Sequence[str | None], grader: Grader | None, denominator: Denominator = "all") -> PseudoLabel:
    """The pseudo-label of one group: m answers, None where a rollout gave none. See `vote_many`."""
    return vote_many([answers], grader, denominator)[0]


def vote_many(
    groups: Sequence[Sequence[str | None]], grader: Grader | None, denominator: Denominator = "all"
) -> list[PseudoLabel]:
    """The pseudo-labels of many groups. See `classify_many`."""
    return [label for label, _ in classify_many(groups, grader, denominator)]


def classify_many(
    groups: Sequence[Sequence[str | None]], grader: Grader | None, denominator: Denominator = "all"
) -> list[tuple[PseudoLabel, Classes]]:
    """The pseudo-labels of many groups, with their comparisons graded in one batch, and each answer's class.

    A class is a place in the label's `classes`, 0 the majority's; an answer that did not vote has None.

    Answers that share a key are one class. With a grader, classes merge when all their members are pairwise equal
    (complete linkage, since grading is not transitive), taken from the most votes down and by key among equals; an
    unknown comparison merges nothing and is counted. Without a grader only keys decide.

    The label is the class with the most votes, in a tie the one with the smallest key. It is spelled as most of its
    rollouts spelled it, the smallest spelling among equals. A blank answer is no answer. `p_hat` is votes / m for
    denominator "all", votes / parsed for "parsed", and 0 when nobody answered.
    """
    tallies = [_tally(answers) for answers in groups]
    verdicts = _grade(tallies, grader) if grader else {}
    return [_label(answers, tally, verdicts, denominator) for answers, tally in zip(groups, tallies, strict=True)]


def _tally(answers: Iterable[str | None]) -> dict[str, Counter[str]]:
    """Votes by key, then by normalised spelling."""
    tally: dict[str, Counter[str]] = {}
    for answer in answers:
        if answer is not None and (key := answer_key(answer)):
            tally.setdefault(key, Counter())[normalise(answer)] += 1
    return tally


def _grade(tallies: Iterable[dict[str, Counter[str]]], grader: Grader) -> Verdicts:
    """The verdict for every two keys of a group, but for two numbers, which differ when their keys do."""
    pairs = sorted({pair for tally in tallies for pair in _open_pairs(tally)})
    return dict(zip(pairs, (comparison.verdict for comparison in grader.compare_many(pairs)), strict=True))


def _open_pairs(tally: dict[str, Counter[str]]) -> list[Pair]:
    return [(a, b) for a, b in combinations(sorted(tally), 2) if not (_is_number(a) and _is_number(b))]


@lru_cache(maxsize=65_536)
def _is_number(key: str) -> bool:
    return parse_number(key) is not None


def _label(
    answers: Sequence[str | None], tally: dict[str, Counter[str]], verdicts: Verdicts, denominator: Denominator
) -> tuple[PseudoLabel, Classes]:
    votes = {key: spellings.total() for key, spellings in tally.items()}
    merged = _merge(sorted(votes, key=lambda key: (-votes[key], key)), verdicts)
    merged.sort(key=lambda members: (-sum(votes[key] for key in members), min(members)))
    classes = tuple(
        (_spelling(tally[key] for key in members), sum(votes[key] for key in members)) for members in merged
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


def _merge(keys: Iterable[str], verdicts: Verdicts) -> list[list[str]]:
    """Each key joins the first class all of whose members it equals, or opens one."""
    classes: list[list[str]] = []
    for key in keys:
        for members in classes:
            if all(verdicts.get((min(key, other), max(key, other))) == "equal" for other in members):
                members.append(key)
                break
        else:
            classes.append([key])
    return classes


def _spelling(spellings: Iterable[Counter[str]]) -> str:
    """The most frequent spelling, the smallest among equals."""
    counts = sum(spellings, Counter[str]())
    return min(counts, key=lambda text: (-counts[text], text))


def classes_of(answers: Sequence[str | None], classes: Sequence[tuple[str, int]]) -> Classes:
    """Which of a stored label's `classes` each answer of its group voted in, without grading again.

    An answer with the key of a class's spelling is in that class; the other keys are in whichever class has room for
    their votes, where that is one only. None: no vote, or it cannot be told.
    """
    keys = [None if answer is None else answer_key(answer) for answer in answers]
    votes = Counter(key for key in keys if key)
    class_of = {key: i for i, (spelling, _) in enumerate(classes) if (key := answer_key(spelling)) in votes}
    room = [count for _, count in classes]
    for key, i in class_of.items():
        room[i] -= votes[key]
    waiting = votes.keys() - class_of.keys()
    while known := next(((key, fits[0]) for key in waiting if len(fits := _with_room(room, votes[key])) == 1), None):
        key, i = known
        class_of[key] = i
        room[i] -= votes[key]
        waiting.remove(key)
    return tuple(None if key is None else class_of.get(key) for key in keys)


def _with_room(room: Sequence[int], votes: int) -> list[int]:
    return [i for i, left in enumerate(room) if left >= votes]
