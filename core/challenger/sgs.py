"""SGS (Bailey et al., arXiv 2604.20209): hard questions that can be solved, as far as a guide finds them clean."""

from __future__ import annotations

from typing import ClassVar, Literal

from core.challenger.base import Asked, ChallengerReward, Need
from core.types import Score
from core.validation.bounds import Share


class SGSChallenger(ChallengerReward):
    """`R_solve R_guide` (section 3, "Conjecturer Update"); range [0, 1]. A malformed rollout gets 0.

    `R_solve` is `1 - s` for the solve rate s, but 0 if s is 0 (too hard), or in the top 30% of the solve rates in the
    batch (too easy).

    Deviations: s is the Solver's agreement with itself, p_hat, because no verifier says what is right. The top share is
    that of the well-formed questions; the released code takes it from those that are neither always nor never solved,
    and keeps what is equal to the quantile, as is done here. The guide of the paper is a model that reviews how related
    to an unsolved problem, how simple and how free of redundant premises a question is. Here it is the program that
    knows whether a question of a tiny world has an answer; where none does, `R_guide` is 1, the paper's ablation
    without a guide. The linear normalisation to [0, 1] within a batch (G.5) changes no z-score and is left out.

    `Score.parts`: also `solve` and, where a program knows it, `well_posed`.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"well_posed"})

    type: Literal["sgs"] = "sgs"
    too_easy: Share = 0.3  # the top share of solve rates

    def scores(self, asked: Asked) -> list[Score]:
        between = sorted(label.p_hat for label in asked.labels if label and 0 < label.p_hat < 1)
        highest = between[min(len(between) - 1, int(len(between) * (1 - self.too_easy)))] if between else 0.0
        scores = []
        for label, well_posed in zip(asked.labels, asked.well_posed, strict=True):
            p_hat = label.p_hat if label else 0.0
            solve = 1 - p_hat if 0 < p_hat <= highest else 0.0
            known = {} if well_posed is None else {"well_posed": float(well_posed)}
            reward = solve if well_posed is not False else 0.0
            scores.append(Score(reward, {"solve": solve, "p_hat": p_hat, "malformed": float(label is None), **known}))
        return scores
