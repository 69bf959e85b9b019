"""A ratchet on difficulty (RLVE's window, Zeng et al., arXiv 2511.07317): the next level opens once one is mastered."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

from core import worlds
from core.challenger.gates.base import Admission, Candidate, Gate, Known
from core.validation.bounds import Count, Positive, Share

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Ratchet(Gate):
    """Admits questions up to the level h of difficulty. h grows by 1 when the accuracy at h, over at least `groups`
    questions, is at least `agreement`; then the count begins anew.

    A question's level is how many operations its answer takes (`core.worlds.difficulty`). Elsewhere it is how many
    numbers the question names, less one, which is simple and rough. There are no true labels, so that "accuracy" is the
    Solver's agreement with itself, p_hat; all questions at h count that were voted on, also those that the band refused
    as too easy. Several levels may open in one iteration, each by the votes at the level before. Deviations from RLVE:
    it draws the questions itself, evenly from h - 3 to h, and counts rollouts; here the Challenger writes them, and
    there is no lower end, because the band refuses what is too easy.
    """

    type: Literal["ratchet"] = "ratchet"
    start: Count = 1  # h in the first iteration
    agreement: Share = 0.9  # tau_acc
    groups: Positive = 8  # tau_num

    def admit(self, candidates: Sequence[Candidate], known: Known) -> Admission:
        p_hats: dict[int, list[float]] = {}
        for question in known.voted:
            p_hats.setdefault(difficulty(question.question), []).append(question.label.p_hat)
        state = known.state or {"level": self.start, "groups": 0, "sum": 0.0}
        level, count, total = state["level"], state["groups"], state["sum"]
        while True:
            here = p_hats.get(level, [])
            count, total = count + len(here), total + math.fsum(here)
            if count < self.groups:
                break
            is_mastered = total / count >= self.agreement
            count, total = 0, 0.0
            if not is_mastered:
                break
            level += 1
        levels = [difficulty(candidate.question) for candidate in candidates]
        new_state = {"level": level, "groups": count, "sum": total}
        return Admission.of((at <= level for at in levels), new_state, level=level)


def difficulty(question: str) -> int:
    """The operations of a question of a tiny world; of any other, the numbers that it names less one."""
    known = worlds.difficulty(question)
    return max(0, len(_NUMBER.findall(question)) - 1) if known is None else known
