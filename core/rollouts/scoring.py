"""Scoring a group by a method: its rewards, who is trained on, and the advantages that follow.

A rollout is undecided if the grader cannot tell whether its answer equals the label that came with the question. It has
no reward: a reward of 0 would call it wrong and lower the mean that the others are compared with. So it is left out,
and all others are scored as if it had not been sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from core.methods import Method, Objective
from core.types import Group, Scored

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class ScoredGroup:
    """The rewards, and the advantages (G,) over the whole group; these are 0 for a rollout that is not learned from."""

    scored: Scored
    advantages: NDArray[np.float64]


def score_group(group: Group, method: Method) -> Scored:
    """The rewards (G,) of a group by `method`, without those of the undecided rollouts.

    A method that makes its labels itself has none (`Method.agreement`). For the others, `group.vote` stays the vote of
    all rollouts. If so many are undecided that the method cannot learn from the rest, the prompt is dropped from the
    loss. The part `undecided` of such a rollout is 1.

    Raises:
        ValueError: a signal that the method needs is missing.
    """
    agrees = group.agrees or () if method.labels == "offline" else ()
    undecided = tuple(i for i, agreed in enumerate(agrees) if agreed is None)
    if not undecided:
        return method.score(group)
    size = len(group.answers)
    judged = [i for i in range(size) if i not in undecided]
    scored = method.score(_only(group, judged)) if judged else Scored(group.label, np.zeros(0))
    rewards, parts = np.zeros(size), [{"undecided": 1.0} for _ in range(size)]
    rewards[judged] = scored.rewards
    for i, of_rollout in zip(judged, scored.rollout_parts or ({},) * len(judged), strict=True):
        parts[i] = {**of_rollout}
    learn = scored.learn and _suffice(judged, method)
    return replace(scored, rewards=rewards, learn=learn, rollout_parts=tuple(parts), undecided=undecided)


def learned_from(scored: Scored, members: Iterable[int], objective: Objective) -> list[int]:
    """The rollouts among `members`, indices in the group, that are trained on: all but the undecided ones.

    There are none if the prompt is dropped from the loss, or if the objective cannot learn from what remains.
    """
    chosen = [*members] if scored.learn else []
    judged = [i for i in chosen if i not in scored.undecided]
    return judged if judged == chosen or _suffice(judged, objective) else []


def outcome(group: Group, method: Method) -> ScoredGroup:
    """Score one group, with its own seed. `trained_share` and the KL do not enter, since only the trainer applies them.

    Raises:
        ValueError: a signal that the method needs is missing, or its sets are larger than the group.
    """
    scored, advantages = score_group(group, method), np.zeros(len(group.answers))
    if members := learned_from(scored, range(len(group.answers)), method):
        clusters = _chosen(group.clusters, members)
        advantages[members] = method.advantages(scored.rewards[members], clusters, group.seed)
    return ScoredGroup(scored, advantages)


def _suffice(judged: Sequence[int], objective: Objective) -> bool:
    """Whether the rollouts that were judged can be compared: there are two, and a whole set for a set objective."""
    try:
        objective.check_group_size(len(judged))
    except ValueError:
        return False
    return len(judged) > 1


def _only(group: Group, members: Sequence[int]) -> Group:
    """The group with these rollouts only, and the vote of all."""
    return replace(
        group,
        answers=tuple(group.answers[i] for i in members),
        classes=tuple(group.classes[i] for i in members),
        agrees=_chosen(group.agrees, members),
        mean_entropy=None if group.mean_entropy is None else group.mean_entropy[[*members]],
        embeddings=None if group.embeddings is None else group.embeddings[[*members]],
        clusters=_chosen(group.clusters, members),
    )


def _chosen(values: Sequence[T] | None, members: Sequence[int]) -> tuple[T, ...] | None:
    return None if values is None else tuple(values[i] for i in members)
