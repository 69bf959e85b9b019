"""The Solver's methods by the name that `solver.reward.type` gives them: one file each, one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.rewards import (
    evol_rl,
    grpo,
    grpo_div,
    pass_at_n,
    poly_epo,
    rloo,
    rzero,
    scrl,
    srt,
    supervised,
    ttrl,
)
from core.types import Group, Scored

# Each takes the variant of `core.methods` that has its name as `type`.
METHODS: dict[str, Callable[[Group, Any], Scored]] = {
    "rzero": rzero.score,
    "ttrl": ttrl.score,
    "srt": srt.score,
    "evol_rl": evol_rl.score,
    "scrl": scrl.score,
    "poly_epo": poly_epo.score,
    "pass_at_n": pass_at_n.score,
    "grpo": grpo.score,
    "grpo_div": grpo_div.score,
    "rloo": rloo.score,
    "supervised": supervised.score,
}
