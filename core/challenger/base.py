"""What the Challenger's rewards have in common: their settings, and what they are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from core.methods.base import Objective
from core.types import PseudoLabel, QuestionFormat, Score
from core.validation.bounds import Answers

# What a reward may need to know besides the votes: questions of earlier iterations that the Solver was unsure of, and
# whether a question has an answer at all.
Need = Literal["earlier", "well_posed"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The rollouts (B,) of a Challenger's step, and what the Solver makes of their questions.

    Raises:
        ValueError: `labels` does not have a label exactly where there is a question.
    """

    questions: Sequence[str | None]  # None: malformed
    labels: Sequence[PseudoLabel | None]  # of the Solver's votes
    seed: int = 0  # of what a reward draws, so that a resumed training draws the same
    earlier: Sequence[str] = ()  # questions of earlier iterations; empty unless the reward needs them
    well_posed: Sequence[bool | None] = ()  # (B,), None where nobody can say; empty unless the reward needs it

    def __post_init__(self) -> None:
        well_formed, labelled = [q is not None for q in self.questions], [label is not None for label in self.labels]
        if well_formed != labelled:
            raise ValueError(
                "labels: expected a pseudo-label for each well-formed question and None for each malformed one, got "
                f"{sum(labelled)} labels for {sum(well_formed)} well-formed of {len(self.questions)} questions"
            )


class ChallengerReward(Objective):
    """The base class of the Challenger's rewards.

    `format` says what the format check expects of a rollout, which is malformed otherwise: the question's tags, or also
    a final `\\boxed{}` after them. The default is R-Zero's. Its section 2.2 names the tags only, although the prompt
    asks for an answer too (E.2). The released reward has the same effect. It was meant to require an answer, but the
    `extract_boxed_content` that it calls returns "None", which is a text, where there is no `\\boxed{}`.
    """

    rollouts: ClassVar[int] = 4

    # R-Zero A.1: z-scores and no entropy bonus; and a rollout that is not trained on would be paid for in vain, because
    # the Challenger's do not vote.
    advantage: ClassVar[Literal["zscore"]] = "zscore"
    entropy_coefficient: ClassVar[float] = 0.0
    trained_share: ClassVar[float] = 1.0
    bleu_distance: ClassVar[float] = 0.5  # tau_BLEU, R-Zero 2.2
    needs: ClassVar[frozenset[Need]] = frozenset()
    memory_band: ClassVar[tuple[float, float]] = (0.3, 0.8)  # of the p_hat of `Asked.earlier` (R-Diverse)

    type: str
    format: QuestionFormat = "tags"
    votes: Answers = 10  # m, the Solver's answers to a question

    def scores(self, asked: Asked) -> list[Score]:
        """The rewards (B,) of the rollouts of a step.

        `Score.parts` explain a reward: `p_hat` (0 if no rollout has an answer), `malformed` (0 or 1), and the terms of
        the reward's own equation.
        """
        raise NotImplementedError
