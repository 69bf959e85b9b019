"""Reads EasyR1's metrics and gives them the names that the embedded trainer uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainers.easyr1.corrections import KL

# EasyR1's name -> ours. The figures of the reward shim keep their names.
_NAMES = {
    "reward/reward": "reward_mean",
    # Not actor/kl_loss, which covers the last micro batch only. The guard decides on this figure.
    KL: "kl",
    "actor/kl_penalty": "kl",  # if the KL is in the reward: a mean over all responses of the step
    "actor/entropy_loss": "entropy",  # an estimate: the mean negative log-probability of the sampled tokens
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "actor/pg_clipfrac_higher": "clip_share",
    "prompt_length/mean": "prompt_length",
    "response_length/mean": "response_length",
    "response_length/clip_ratio": "truncated_share",
    "timing_s/gen": "sample_seconds",
    # The time that the reward takes after the log-probabilities, which EasyR1 computes at the same time, are done.
    "timing_s/adv": "reward_seconds",
    "timing_s/update_actor": "update_seconds",
    "perf/throughput": "tokens_per_second_per_gpu",
}
_NOT_FIGURES = frozenset({"overall", "reward", "advantage", "learned_from"})  # values per rollout (reward_shim.py)


def parse(line: str) -> dict[str, float] | None:
    """The metrics in one line of `experiment_log.jsonl`, or None if the line is not about a training step.

    EasyR1 logs each figure of the reward shim under `reward/`, as a mean over the rollouts.
    """
    record = json.loads(line)
    if "reward" not in record:
        return None
    flat = dict(_flatten(record))
    metrics = {"step": float(record["step"])}
    metrics |= {ours: flat[theirs] for theirs, ours in _NAMES.items() if theirs in flat}
    figures = {name.removeprefix("reward/"): value for name, value in flat.items() if name.startswith("reward/")}
    return metrics | {name: value for name, value in figures.items() if name not in _NOT_FIGURES}


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in nested dictionaries, with their keys joined by slashes."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
