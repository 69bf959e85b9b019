"""The Solver's methods: what a preset's `[solver.reward]` can say, with each paper's numbers as defaults.

`type` tells the variants apart. What a variant makes of a group is in the file of that name in `core.rewards`; the rest
of it, the objective, is the same words for all. `docs/papers.md` maps every equation to its function and its test.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.settings import Answers, Factor, Part, Positive, Scale, Share

Signal = Literal["label", "mean_entropy", "embeddings", "clusters"]
Labels = Literal["online", "offline"]  # the vote of these very rollouts, or the label that came with the question
Advantage = Literal["zscore", "mean", "rloo", "set"]
LossAverage = Literal["sequence", "token", "max_length"]


class Objective(Part):
    """From a group's rewards to a gradient (`core.advantages`, `trainers.local.grpo`)."""

    rollouts: ClassVar[int]  # a prompt, where `[….training] rollouts_per_prompt` does not say

    advantage: Advantage = "zscore"
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: Scale = 0.2
    entropy_coefficient: Factor = 0.0
    kl_coefficient: Factor = 1e-2
    kl_in: Literal["loss", "reward"] = "loss"
    loss_average: LossAverage = "sequence"
    trained_share: float = Field(1.0, gt=0, le=1)  # of the rollouts, all of which vote


class Method(Objective):
    """One of the Solver's methods."""

    signals: ClassVar[frozenset[Signal]] = frozenset()

    type: str
    labels: Labels = "offline"

    @property
    def needs(self) -> frozenset[Signal]:
        """What must be known of a question and its rollouts besides their answers."""
        return self.signals | ({"label"} if self.labels == "offline" else set())

    @model_validator(mode="after")
    def _sets_have_a_size(self) -> Method:
        if self.advantage == "set" and not isinstance(self, SetMethod):
            raise ValueError("advantage: 'set' belongs to poly_epo and pass_at_n; expected zscore, mean or rloo")
        return self


class SetMethod(Method):
    """An objective over sets of rollouts (Poly-EPO 3, A). `sets`: how many are sampled; None: all there are."""

    rollouts: ClassVar[int] = 8  # N

    advantage: Literal["set"] = "set"
    set_size: Answers = 4  # n
    sets: Positive | None = None  # K
    clip_high: Scale = 0.28
    kl_coefficient: Factor = 0.0
    loss_average: LossAverage = "max_length"


class RZero(Method):
    """R-Zero 2.4: agreement with the label that the Solver of the iteration before voted for."""

    rollouts: ClassVar[int] = 5

    type: Literal["rzero"] = "rzero"
    labels: Literal["offline"] = "offline"


class Ttrl(Method):
    """TTRL, as EVOL-RL (3.1, A.4) and SCRL (4.1) run it: agreement with the majority of 64 votes, 32 trained on."""

    rollouts: ClassVar[int] = 64

    type: Literal["ttrl"] = "ttrl"
    labels: Literal["online"] = "online"
    kl_coefficient: Factor = 1e-3
    trained_share: float = Field(0.5, gt=0, le=1)


class Srt(Method):
    """SRT (eq. 6, 4, B.1): agreement with the group's own majority, or with labels made once (5.2).

    B.1 sums the log-probabilities of a response's tokens: `max_length` is that, but for a constant.
    """

    rollouts: ClassVar[int] = 32

    type: Literal["srt"] = "srt"
    labels: Labels = "online"
    advantage: Advantage = "rloo"
    kl_coefficient: Factor = 1e-3
    kl_in: Literal["loss", "reward"] = "reward"
    loss_average: LossAverage = "max_length"


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


class Scrl(Method):
    """SCRL (3.2 to 3.4, 4.1): a positive label only under firm consensus, negative ones for what is rare and unsure.

    The KL coefficient is the released script's; eq. 2 shows none. The cosine schedule of its learning rate is not here.
    """

    rollouts: ClassVar[int] = 64
    signals: ClassVar[frozenset[Signal]] = frozenset({"mean_entropy"})

    type: Literal["scrl"] = "scrl"
    variant: Literal["paper", "official"] = "paper"
    labels: Literal["online"] = "online"
    tau_pos: Share = 0.375
    tau_marg: Share = 0.125
    tau_neg: Share = 0.125
    entropy_weight: Factor = 0.1  # lambda_H
    kl_coefficient: Factor = 1e-3
    trained_share: float = Field(0.5, gt=0, le=1)


class PolyEpo(SetMethod):
    """Poly-EPO (4, A): sets that are right together and of many strategies."""

    signals: ClassVar[frozenset[Signal]] = frozenset({"clusters"})

    type: Literal["poly_epo"] = "poly_epo"


class PassAtN(SetMethod):
    """The pass@n set objective (Poly-EPO 5.1), otherwise run as Poly-EPO."""

    type: Literal["pass_at_n"] = "pass_at_n"


class Grpo(Method):
    """GRPO as Poly-EPO's baseline (A): without the standard deviation; `advantage = "zscore"` is GRPO with it.

    With `loss_average = "max_length"` this is Dr. GRPO.
    """

    rollouts: ClassVar[int] = 8

    type: Literal["grpo"] = "grpo"
    advantage: Advantage = "mean"
    clip_high: Scale = 0.28
    kl_coefficient: Factor = 0.0


class GrpoDiv(Method):
    """GRPO+DIV (Poly-EPO eq. 17): the reward plus a bonus for being of a small cluster.

    The paper does not give its lambda; 0.5 is the value of the example in 5.2.
    """

    rollouts: ClassVar[int] = 8
    signals: ClassVar[frozenset[Signal]] = frozenset({"clusters"})

    type: Literal["grpo_div"] = "grpo_div"
    diversity_weight: Factor = 0.5  # lambda
    advantage: Advantage = "mean"
    clip_high: Scale = 0.28
    kl_coefficient: Factor = 0.0


class Rloo(Method):
    """RLOO (SRT B.1) on the labels that come with the questions: SRT's control, where they are true."""

    rollouts: ClassVar[int] = 32

    type: Literal["rloo"] = "rloo"
    advantage: Advantage = "rloo"
    kl_coefficient: Factor = 1e-3
    kl_in: Literal["loss", "reward"] = "reward"
    loss_average: LossAverage = "max_length"


class Supervised(Method):
    """R-Zero's GRPO on true labels (B.3)."""

    rollouts: ClassVar[int] = 5

    type: Literal["supervised"] = "supervised"
    labels: Literal["offline"] = "offline"


SolverReward = Annotated[
    RZero | Ttrl | Srt | EvolRl | Scrl | PolyEpo | PassAtN | Grpo | GrpoDiv | Rloo | Supervised,
    Field(discriminator="type"),
]
