"""R-Zero (Huang et al., arXiv 2508.05004): questions of which the Solver is unsure, and not many alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from core.challenger.base import Asked, ChallengerReward
from core.types import Score
from core.validation.bounds import Factor


class RZeroChallenger(ChallengerReward):
    """Uncertainty less repetition (R-Zero 2.2). `variant="official"` is the reward of the released code, which differs.

    `C_k` is the BLEU cluster of a question, B the size of the whole batch.

    `variant="paper"` (R-Zero 2.2, E.4; range [0, 1]): `max(0, 1 - 2|p_hat - 1/2| - lambda |C_k|/B)`. A malformed
    rollout gets 0. It is in no cluster, but counts in B.

    `variant="official"` (the released code; range [-2, 1/2]): `min(p_hat, 1 - p_hat) - |C_k|/B`. The uncertainty is
    half of the paper's, the penalty is not halved, and the reward is not cut off at 0. A malformed rollout gets
    `-1 - |C_k|/B` and is clustered as an empty question, which is alone in its cluster, because it is at distance 1
    from every other. The release has no lambda; ours, 1 by default, scales its penalty.

    `Score.parts`: `uncertainty` and `repetition` as they enter the reward, `cluster_size` |C_k| (0 for a rollout in no
    cluster).
    """

    type: Literal["rzero"] = "rzero"
    variant: Literal["paper", "official"] = "paper"
    repetition_weight: Factor = 1.0  # lambda; with 0 there is no repetition penalty, an ablation of Table 3

    def scores(self, asked: Asked) -> list[Score]:
        official, count, scores = self.variant == "official", len(asked.questions), list[Score]()
        sizes = cluster_sizes(asked.questions, self.bleu_distance, with_malformed=official)
        others = self.penalties(asked)
        for i, label in enumerate(asked.labels):
            p_hat = label.p_hat if label else 0.0
            uncertainty = min(p_hat, 1 - p_hat) if official else self.uncertainty(p_hat)
            penalties = {"repetition": self.repetition_weight * (sizes[i] / count), **others[i]}
            reward = uncertainty - sum(penalties.values())
            reward = reward - (label is None) if official else max(0.0, reward)
            parts = {"uncertainty": uncertainty, **penalties, "p_hat": p_hat}
            scores.append(Score(reward, {**parts, "malformed": float(label is None), "cluster_size": float(sizes[i])}))
        return scores

    def uncertainty(self, p_hat: float) -> float:
        """How unsure the Solver is: 1 where half of its votes agree, 0 where all or none do."""
        return 1 - 2 * abs(p_hat - 0.5)

    def penalties(self, asked: Asked) -> list[dict[str, float]]:
        """Further penalties of each rollout (B,), by name."""
        return [{} for _ in asked.questions]


def cluster_sizes(questions: Sequence[str | None], distance: float, *, with_malformed: bool = False) -> list[int]:
    """How many questions (B,) the BLEU cluster of each question has. A malformed one has 0, or is an empty question."""
    # Imported here, because every command imports the rewards, and only the Challenger's training needs SciPy.
    from core.questions.similarity import clusters

    clustered = [i for i, question in enumerate(questions) if question is not None or with_malformed]
    cluster_of = clusters([questions[i] or "" for i in clustered], distance)
    counts, sizes = Counter(cluster_of), [0] * len(questions)
    for i, cluster in zip(clustered, cluster_of, strict=True):
        sizes[i] = counts[cluster]
    return sizes
