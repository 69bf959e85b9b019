"""EasyR1's metrics, by the names that the embedded trainer's have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainers.easyr1.corrections import KL

# EasyR1's -> ours; a figure of the reward shim keeps its name
_NAMES = {
    "reward/reward": "reward_mean",
    # Never actor/kl_loss, which is the last micro batch's alone, and the guard decides on it.
    KL: "kl",
    "actor/kl_penalty": "kl",  # where the KL is in the reward: of the whole step, a mean over its responses
    "actor/entropy_loss": "entropy",  # the mean negative log-probability of the sampled tokens: an estimate of it
    "actor/grad_norm": "grad_norm",
    "actor/pg_clipfrac_higher": "clip_share",
    "response_length/mean": "response_length",
    "response_length/clip_ratio": "truncated_share",
    "timing_s/gen": "sample_seconds",
    "timing_s/adv": "reward_seconds",  # what the reward takes beyond the log-probabilities computed meanwhile
    "timing_s/update_actor": "update_seconds",
    "perf/throughput": "tokens_per_second_per_gpu",
}
_PLUMBING = frozenset({"overall", "reward", "advantage", "learned_from"})


def parse(line: str) -> dict[str, float] | None:
    """The metrics of one line of `experiment_log.jsonl`; None for a line that is not of a training step.

    EasyR1 logs a mean over rollouts of each figure of the reward shim, under `reward/`.
    """
    record = json.loads(line)
    if "reward" not in record:
        return None
    flat = dict(_flat(record))
    metrics = {"step": float(record["step"])}
    metrics |= {ours: flat[theirs] for theirs, ours in _NAMES.items() if theirs in flat}
    figures = {name.removeprefix("reward/"): value for name, value in flat.items() if name.startswith("reward/")}
    return metrics | {name: value for name, value in figures.items() if name not in _PLUMBING}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
