"""R-Diverse (Li et al., arXiv 2602.13103): R-Zero's reward with a memory of the questions of all earlier iterations."""

from __future__ import annotations

from typing import ClassVar, Literal

from core.challenger.base import Asked, Need
from core.challenger.rzero import RZeroChallenger
from core.validation.bounds import Factor, Share


class RDiverseChallenger(RZeroChallenger):
    """`max(0, R_unc - lambda P_rep - memory_weight P_MAP)`; range [0, 1]. A malformed rollout gets 0.

    `P_MAP = gamma [P_max - tau_max]+ + (1 - gamma) [P_mean - tau_mean]+`, where P_max and P_mean are the largest and
    the mean cosine between `phi` of the question and `phi` of the questions in the memory. The memory holds the
    well-formed questions of all earlier iterations with .3 <= p_hat <= .8. With an empty memory it is R-Zero's reward.

    Deviations: the paper's `phi` embeds a program that a coding model writes for the question. Here it is a count of
    the n-grams (n <= 3) of the question's skeleton, which a program knows in the tiny worlds (`core.worlds.skeleton`),
    and elsewhere of its words without numbers. The code is not released, and the paper's text that we have does not
    say whether the reward is cut off at 0; as in R-Zero, ours is.

    `Score.parts`: also `memory`, the penalty as it enters the reward.
    """

    variant: ClassVar[Literal["paper"]] = "paper"  # type: ignore[misc]
    needs: ClassVar[frozenset[Need]] = frozenset({"earlier"})

    type: Literal["r_diverse"] = "r_diverse"  # type: ignore[assignment]
    memory_weight: Factor = 1.0
    gamma: Share = 0.5
    tau_max: Share = 0.5
    tau_mean: Share = 0.25

    def penalties(self, asked: Asked) -> list[dict[str, float]]:
        if not asked.earlier:
            return [{"memory": 0.0} for _ in asked.questions]
        from core.questions.skeletons import similarities  # here, because it imports scikit-learn

        well_formed = [i for i, question in enumerate(asked.questions) if question is not None]
        cosines = similarities([asked.questions[i] or "" for i in well_formed], asked.earlier)
        penalties = [{"memory": 0.0} for _ in asked.questions]
        for i, (largest, mean) in zip(well_formed, cosines, strict=True):
            excess = self.gamma * max(0.0, largest - self.tau_max) + (1 - self.gamma) * max(0.0, mean - self.tau_mean)
            penalties[i]["memory"] = self.memory_weight * excess
        return penalties
