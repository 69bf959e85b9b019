"""Agreement with a label, which most methods begin with: R-Zero 2.4, SRT eq. 6, and every verifiable reward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.methods import Labels
from core.types import Group, Scored


def agreement(group: Group, labels: Labels) -> tuple[str | None, NDArray[np.bool_]]:
    """The label, and which rollouts (G,) gave it.

    "online": the vote of the group itself, None when nobody answered. "offline": the label that came with the question.

    Raises:
        ValueError: "offline", and there is none.
    """
    if labels == "online":
        return group.vote.answer, np.array([place == 0 for place in group.classes], dtype=np.bool_)
    if group.label is None or group.agrees is None:
        raise ValueError("label: this method learns from labels that come with the questions, and there is none")
    return group.label, np.array(group.agrees, dtype=np.bool_)


def agreement_scores(group: Group, labels: Labels) -> Scored:
    """1 for a rollout that gave the label, else 0 (G,); a prompt without a label is dropped from the loss."""
    label, agrees = agreement(group, labels)
    return Scored(label, agrees.astype(np.float64), learn=label is not None)
