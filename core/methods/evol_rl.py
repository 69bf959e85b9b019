"""EVOL-RL (Zhou et al., arXiv 2509.15194): the majority selects, novelty varies."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.methods.base import Floats, Labels, Method, Signal
from core.settings.bounds import Factor, Scale, Share
from core.types import Group, Scored

EPSILON = 1e-8  # A.3
# Two members that are each other's nearest have equal novelty up to rounding; min-max would make 0 and 1 of it.
TOLERANCE = 1e-7

_DIGIT = re.compile(r"\d")

Flags = NDArray[np.bool_]


class EvolRl(Method):
    """EVOL-RL (2.2, A.2 to A.4): the majority's band above the minority's, novelty inside each.

    `labels = "offline"` is its supervised form (3.5).
    """

    rollouts: ClassVar[int] = 64
    signals: ClassVar[frozenset[Signal]] = frozenset({"embeddings"})

    type: Literal["evol_rl"] = "evol_rl"
    variant: Literal["paper", "official"] = "paper"
    labels: Labels = "online"
    alpha: Share = 0.5
    clip_high: Scale = 0.28
    entropy_coefficient: Factor = 3e-3
    kl_coefficient: Factor = 1e-3
    trained_share: float = Field(0.5, gt=0, le=1)

    def score(self, group: Group) -> Scored:
        """Rewards (G,) (2.2, A.2, A.3): invalid -1; majority in [0.5, 1]; minority in [-1, -0.5].

        Valid is an answer with a digit. The majority is voted among the valid ones. Over valid responses, with S their
        cosine similarities: s_i the mean of S to the others of one's side, m_i the greatest to any other; novelty u_i =
        1 - (alpha s_i + (1 - alpha) m_i), min-max normalised within each side to v_i; `0.5 + 0.5 v` for the majority,
        `-1 + 0.5 v` for the minority. A member alone on its side takes the mean over all others for s_i.

        `variant="paper"`: a side whose novelties are all equal, a lone member's included, has v = 0: its band's bottom.
        `variant="official"` (YujunZhou/EVOL-RL, semantic_novelty.py): cosines clipped to [0, 1]; the majority voted
        among all answers; a lone majority member gets 1, a lone minority member -0.5, sides of equals 0.75 and -0.75;
        and where a group has one valid response and any invalid one, that one gets -1 too. Not reproduced: the release
        takes a digit in any box for validity, where A.2 says the last; random vectors where its embedding service
        fails.

        Raises:
            ValueError: no embeddings (G, D).
        """
        if group.embeddings is None or len(group.embeddings) != len(group.answers):
            raise ValueError(f"embeddings: expected one a rollout, {len(group.answers)}, for evol_rl")
        valid = np.array(
            [answer is not None and bool(_DIGIT.search(answer)) for answer in group.answers], dtype=np.bool_
        )
        label, majority = self._majority(group, valid)
        rewards = np.full(len(group.answers), -1.0)
        if not (self.variant == "official" and valid.sum() == 1 < len(valid)):
            similarity = _cosines(group.embeddings[valid], clipped=self.variant == "official")
            rewards[valid] = _banded(similarity, majority[valid], self)
        shares = {"valid_share": float(valid.mean()), "majority_share": float(majority.mean())}
        return Scored(label, rewards, learn=label is not None, parts=shares)

    def _majority(self, group: Group, valid: Flags) -> tuple[str | None, Flags]:
        """The label, and who is valid and on its side."""
        if self.labels == "offline" or self.variant == "official":
            label, agrees = self.agreement(group)
            return label, agrees & valid
        votes = np.zeros(len(group.vote.classes), dtype=np.int64)
        for index, is_valid in zip(group.classes, valid, strict=True):
            if index is not None and is_valid:
                votes[index] += 1
        if not votes.any():
            return None, np.zeros_like(valid)
        top = int(votes.argmax())  # the first of equals: `vote.classes` has the order of a tie
        return group.vote.classes[top][0], np.array([index == top for index in group.classes]) & valid


def _cosines(embeddings: Floats, clipped: bool) -> Floats:
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.maximum(lengths, EPSILON)
    similarity: Floats = unit @ unit.T
    return similarity.clip(0, 1) if clipped else similarity


def _banded(similarity: Floats, majority: Flags, method: EvolRl) -> Floats:
    """Rewards of the valid responses (V,) from their similarities (V, V)."""
    novelty = _novelty(similarity, majority, method.alpha)
    rewards = np.empty(len(majority))
    for side, bottom, alone in ((majority, 0.5, 1.0), (~majority, -1.0, -0.5)):
        if not side.any():
            continue
        spread = float(np.ptp(novelty[side]))
        if spread > TOLERANCE:
            rewards[side] = bottom + 0.5 * (novelty[side] - novelty[side].min()) / (spread + EPSILON)
        elif method.variant == "paper":
            rewards[side] = bottom
        else:
            rewards[side] = alone if side.sum() == 1 else bottom + 0.25
    return rewards


def _novelty(similarity: Floats, majority: Flags, alpha: float) -> Floats:
    """u (V,): 1 - (alpha * mean similarity to one's side + (1 - alpha) * greatest similarity to anyone)."""
    count = len(majority)
    if count < 2:
        return np.zeros(count)
    other = ~np.eye(count, dtype=np.bool_)
    peers = other & (majority[:, None] == majority[None, :])
    peers[~peers.any(1)] = other[~peers.any(1)]  # alone on its side: everyone
    mean = (similarity * peers).sum(1) / peers.sum(1)
    greatest = np.where(other, similarity, -np.inf).max(1)
    novelty: Floats = 1 - (alpha * mean + (1 - alpha) * greatest)
    return novelty
