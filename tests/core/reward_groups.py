"""Groups for the tests of the rewards, made from answers and signals by the same code as in production."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from core.grading.grader import Grader
from core.methods import Method
from core.methods.poly_epo import Grpo, PassAtN
from core.methods.rzero import RZero, Supervised
from core.methods.srt import Rloo, Srt
from core.methods.ttrl import Ttrl
from core.rollouts.groups import make_groups
from core.types import Group

# The methods whose reward is agreement with the group's own vote, and those with the label of the question.
VOTED: list[Method] = [Ttrl(), Srt(), Grpo(labels="online"), Rloo(labels="online"), PassAtN(labels="online")]
GIVEN: list[Method] = [RZero(), Srt(labels="offline"), Grpo(), Rloo(), PassAtN(), Supervised()]

_grader = Grader()  # it never starts a worker: the answers here are numbers and words


def group_of(answers: Sequence[str | None], label: str | None = None, **signals: Any) -> Group:
    [group] = make_groups([answers], [label], _grader)
    arrays = {
        name: value if name == "clusters" else np.array(value, dtype=np.float64) for name, value in signals.items()
    }
    return replace(group, **arrays)


def permuted(group: Group, order: Sequence[int]) -> Group:
    """The same rollouts in another order, with their signals."""
    answers = [group.answers[i] for i in order]
    signals: dict[str, Any] = {}
    for name in ("mean_entropy", "embeddings"):
        if (values := getattr(group, name)) is not None:
            signals[name] = values[list(order)]
    if group.clusters is not None:
        signals["clusters"] = tuple(group.clusters[i] for i in order)
    return group_of(answers, group.label, **signals)


@st.composite
def any_groups(draw: st.DrawFn) -> Group:
    """Groups with every signal. They often have ties, missing answers, a single rollout, or answers that are all equal
    or all different."""
    count = draw(st.integers(1, 10))

    def draw_list(strategy: st.SearchStrategy[Any], size: int = count) -> list[Any]:
        return draw(st.lists(strategy, min_size=size, max_size=size))

    answers = draw_list(st.sampled_from(["1", "2", "3", "4", "5", "x", None]))
    embeddings = [draw_list(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), 3) for _ in range(count)]
    clusters = tuple(draw_list(st.sampled_from([1, 2, 3, 100])))
    entropies = draw_list(st.sampled_from([0.0, 0.1, 0.5, 2.0]))
    label = draw(st.sampled_from(["1", "2", "9"]))
    return group_of(answers, label, mean_entropy=entropies, embeddings=embeddings, clusters=clusters)
