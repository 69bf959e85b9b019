"""EVOL-RL (Zhou et al., arXiv 2509.15194): the majority selects, novelty varies."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.methods.base import Floats, Labels, Method, Signal
from core.types import Group, Scored
from core.validation.bounds import Factor, Scale, Share

EPSILON = 1e-8  # A.3
# Two members that are each other's nearest have equal novelty up to rounding; min-max would turn that into 0 and 1.
TOLERANCE = 1e-7

_DIGIT = re.compile(r"\d")

Flags = NDArray[np.bool_]


class EvolRl(Method):
    """EVOL-RL (2.2, A.2 to A.4): the majority's band of rewards is above the minority's; novelty decides within a band.

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
        """Rewards (G,) (2.2, A.2, A.3): -1 for an invalid response, in [0.5, 1] for one of the majority, in [-1, -0.5]
        for one of the minority.

        A response is valid if its answer has a digit. The majority is voted among the valid responses. Let S be the
        cosine similarities of the valid responses, s_i the mean of S between response i and the others of its side, and
        m_i the greatest S between it and any other. Its novelty u_i = 1 - (alpha s_i + (1 - alpha) m_i) is min-max
        normalised within its side to v_i. The reward is `0.5 + 0.5 v` for the majority and `-1 + 0.5 v` for the
        minority. For a response that is alone on its side, s_i is the mean over all others.

        `variant="paper"`: on a side where all novelties are equal, or with a single member, v = 0, the bottom of the
        band. `variant="official"` (YujunZhou/EVOL-RL, semantic_novelty.py): cosines are clipped to [0, 1]; the majority
        is voted among all answers; a single majority member gets 1 and a single minority member -0.5; members with
        equal novelties get 0.75 and -0.75; and a single valid response beside invalid ones gets -1 too. Two things are
        not reproduced: the release takes a response with a digit in any box for valid, where A.2 says the last box; and
        it uses random vectors if its embedding service fails.

        `Scored.rollout_parts`: `valid` and, of valid responses, `majority` (0 or 1 both) and `novelty`, u in the text.

        Raises:
            ValueError: there is not one embedding (D,) per rollout.
        """
        if group.embeddings is None or len(group.embeddings) != len(group.answers):
            count = "none" if group.embeddings is None else len(group.embeddings)
            raise ValueError(f"embeddings: evol_rl needs one per rollout: expected {len(group.answers)}, got {count}")
        valid = np.array(
            [answer is not None and bool(_DIGIT.search(answer)) for answer in group.answers], dtype=np.bool_
        )
        label, majority = self._majority(group, valid)
        rewards, novelty = np.full(len(group.answers), -1.0), np.zeros(len(group.answers))
        if not (self.variant == "official" and valid.sum() == 1 < len(valid)):
            lengths = np.linalg.norm(group.embeddings[valid], axis=1, keepdims=True)
            unit = group.embeddings[valid] / np.maximum(lengths, EPSILON)
            similarity = (unit @ unit.T).clip(0, 1) if self.variant == "official" else unit @ unit.T
            novelty[valid] = _novelty(similarity, majority[valid], self.alpha)
            rewards[valid] = _banded(novelty[valid], majority[valid], self)
        shares = {"valid_share": float(valid.mean()), "majority_share": float(majority.mean())}
        of_rollouts = tuple(
            {"valid": 1.0, "majority": float(majority[i]), "novelty": float(novelty[i])} if valid[i] else {"valid": 0.0}
            for i in range(len(valid))
        )
        return Scored(label, rewards, learn=label is not None, parts=shares, rollout_parts=of_rollouts)

    def _majority(self, group: Group, valid: Flags) -> tuple[str | None, Flags]:
        """The label, and which responses are valid and agree with it."""
        if self.labels == "offline" or self.variant == "official":
            label, agrees = self.agreement(group)
            return label, agrees & valid
        votes = np.zeros(len(group.vote.classes), dtype=np.int64)
        for index, is_valid in zip(group.classes, valid, strict=True):
            if index is not None and is_valid:
                votes[index] += 1
        if not votes.any():
            return None, np.zeros_like(valid)
        top = int(votes.argmax())  # the first of equals: `vote.classes` is in the order that decides ties
        return group.vote.classes[top][0], np.array([index == top for index in group.classes]) & valid


def _banded(novelty: Floats, majority: Flags, method: EvolRl) -> Floats:
    """Rewards of the valid responses (V,) from their novelties u (V,)."""
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
    """u (V,): 1 - (alpha * mean similarity to the own side + (1 - alpha) * greatest similarity to any other)."""
    count = len(majority)
    if count < 2:
        return np.zeros(count)
    other = ~np.eye(count, dtype=np.bool_)
    peers = other & (majority[:, None] == majority[None, :])
    peers[~peers.any(1)] = other[~peers.any(1)]  # alone on its side: compared with all others
    mean = (similarity * peers).sum(1) / peers.sum(1)
    greatest = np.where(other, similarity, -np.inf).max(1)
    novelty: Floats = 1 - (alpha * mean + (1 - alpha) * greatest)
    return novelty
