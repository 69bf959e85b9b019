"""VHG (arXiv 2605.06660): the harder a valid question is, the better."""

from __future__ import annotations

from typing import ClassVar, Literal

from core.challenger.base import Asked, ChallengerReward, Need
from core.types import Score


class VHGChallenger(ChallengerReward):
    """`valid (1 - acc)`; range [0, 1]. A malformed rollout gets 0.

    `acc` is the Solver's accuracy. Here it is p_hat, its agreement with itself, because no true label is used. `valid`
    is 0 for a question of which a program knows that it has no answer, and 1 for any other. Nothing rewards diversity,
    and a question with p_hat near 0 has a label that is nearly always wrong: a loop with this reward alone is a
    negative example.

    `Score.parts`: also `well_posed`, where a program knows it.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"well_posed"})

    type: Literal["vhg"] = "vhg"

    def scores(self, asked: Asked) -> list[Score]:
        scores = []
        for label, well_posed in zip(asked.labels, asked.well_posed, strict=True):
            p_hat = label.p_hat if label else 0.0
            reward = 1 - p_hat if label and well_posed is not False else 0.0
            known = {} if well_posed is None else {"well_posed": float(well_posed)}
            scores.append(Score(reward, {"p_hat": p_hat, "malformed": float(label is None), **known}))
        return scores
