"""What the Solver's methods have in common: settings, agreement with a label, and advantages from rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.types import Group, Scored
from core.validation.bounds import Factor, Scale, SettingsTable

Signal = Literal["label", "mean_entropy", "embeddings", "clusters"]
Labels = Literal["online", "offline"]  # the vote of the same rollouts, or the label that came with the question
Advantage = Literal["zscore", "population_zscore", "mean", "rloo", "set"]
LossAverage = Literal["sequence", "token", "max_length"]

Floats = NDArray[np.float64]

EPSILON = 1e-6


class Objective(SettingsTable):
    """How the rewards of a group become a gradient. The advantages are here, the loss is in `trainers.local.grpo`."""

    rollouts: ClassVar[int]  # of a prompt, unless `[….training] rollouts_per_prompt` is set
    clip_low: ClassVar[float] = 0.2  # of every paper that states it; only the upper limit is moved
    kl_in: ClassVar[Literal["loss", "reward"]] = "loss"  # SRT's is in the reward

    clip_high: Scale = 0.2
    kl_coefficient: Factor = 1e-2
    loss_average: LossAverage = "sequence"

    if TYPE_CHECKING:  # settings of the Solver's methods, constants of the Challenger's reward

        @property
        def advantage(self) -> Advantage: ...

        @property
        def entropy_coefficient(self) -> float: ...

        @property
        def trained_share(self) -> float: ...

    def advantages(self, rewards: Floats, clusters: Sequence[int] | None = None, seed: int = 0) -> Floats:
        """Advantages (G,) of the rewards (G,) of one prompt's rollouts, by the estimator that `advantage` names.

        "zscore" is GRPO, with the sample's standard deviation, over G - 1. "population_zscore" has the population's,
        over G, with which a share f of rewards 1 among rewards 0 gets `sqrt((1 - f) / f)` (SCRL eq. 3). "mean" is
        `r - mean`, GRPO without std, as in Poly-EPO's baselines (A). "rloo" is `r` minus the mean of the others,
        `G/(G-1) (r - mean)` (SRT B.1). A single rollout gets 0. A method with an estimator of its own may need the
        strategies' `clusters` (G,), and `seed` if it draws random numbers.

        Raises:
            ValueError: rewards are not one non-empty row of finite numbers, or a signal that the method's estimator
                needs is missing.
        """
        if rewards.ndim != 1 or not rewards.size or not np.isfinite(rewards).all():
            raise ValueError(f"rewards: expected finite numbers of shape (G,), got {rewards!r}")
        return self._estimate(rewards, clusters, seed)

    def check_group_size(self, rollouts: int) -> None:
        """Raise `ValueError` if the objective cannot learn from so many rollouts of a prompt."""

    def _estimate(self, rewards: Floats, _clusters: Sequence[int] | None, _seed: int) -> Floats:
        if self.advantage in ("zscore", "population_zscore"):
            return zscores(rewards, population=self.advantage == "population_zscore")
        scale = len(rewards) / max(1, len(rewards) - 1) if self.advantage == "rloo" else 1.0
        centred: Floats = scale * (rewards - rewards.mean()) if np.ptp(rewards) else np.zeros_like(rewards)
        return centred


class Method(Objective):
    """The base class of the Solver's methods. By default, a method rewards agreement with a label."""

    signals: ClassVar[frozenset[Signal]] = frozenset()

    type: str
    labels: Labels | Literal["none"] = "offline"
    advantage: Advantage = "zscore"
    entropy_coefficient: Factor = 0.0
    trained_share: float = Field(1.0, gt=0, le=1)  # share of the rollouts that is trained on; all rollouts vote

    @property
    def needs(self) -> frozenset[Signal]:
        """The signals that must be known of a question and its rollouts, besides the answers."""
        return self.signals | ({"label"} if self.labels == "offline" else set())

    def score(self, group: Group) -> Scored:
        """Rewards (G,) in {0, 1}: 1 for a rollout whose answer is the label (R-Zero 2.4, SRT eq. 6, and any verifiable
        reward). A prompt without a label is dropped from the loss. Raises the errors of `agreement`. Its caller is
        `core.rollouts.scoring.score_group`, which leaves out the rollouts that are undecided.

        A method that draws random numbers takes them from `group.seed`, so that a resumed training draws the same.
        """
        label, agrees = self.agreement(group)
        return Scored(label, agrees.astype(np.float64), learn=label is not None)

    def agreement(self, group: Group) -> tuple[str | None, NDArray[np.bool_]]:
        """The label, and which rollouts (G,) agree with it.

        For "online" the label is the vote of the group itself, None if no rollout has an answer. No rollout is
        undecided then: an answer that the grader cannot compare with others has been counted as another answer by the
        vote, from which both the label and the shares follow. For "offline" it is the label that came with the
        question.

        Raises:
            ValueError: `labels` is "offline", and the question has no label, or a rollout is undecided.
        """
        if self.labels == "online":
            return group.vote.answer, np.array([index == 0 for index in group.classes], dtype=np.bool_)
        if group.label is None or group.agrees is None:
            raise ValueError("label: this method learns from labels that come with the questions, got None")
        if None in group.agrees:
            raise ValueError("agrees: expected True or False of each rollout, got None: call score_group")
        return group.label, np.array(group.agrees, dtype=np.bool_)

    @model_validator(mode="after")
    def _sets_have_a_size(self) -> Method:
        if self.advantage == "set" and "set_size" not in type(self).model_fields:
            raise ValueError(
                "advantage: 'set' belongs to poly_epo and pass_at_n; expected zscore, population_zscore, mean or rloo"
            )
        return self


def zscores(rewards: Floats, population: bool = False) -> Floats:
    """Z-scores within the group (G,): `(r - mean) / (std + 1e-6)` (R-Zero A.1).

    R-Zero does not say which standard deviation and epsilon it uses. Here they are those of the released code (EasyR1):
    the sample's, over G - 1, and 1e-6. With `population`, it is the one over G, as in SCRL's eq. 3. Equal rewards, and
    a single one, give exact zeros.
    """
    if np.ptp(rewards) == 0:
        return np.zeros_like(rewards, dtype=np.float64)
    scores: Floats = (rewards - rewards.mean()) / (rewards.std(ddof=0 if population else 1) + EPSILON)
    return scores
