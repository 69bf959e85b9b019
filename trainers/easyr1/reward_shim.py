"""The reward function that EasyR1 loads: `reward_shim.py:compute_score`.

It runs in EasyR1's environment, in the process where EasyR1 computes rewards. It imports `core`, the inference client,
and `trainers.rewards` and `trainers.rollouts`, which the embedded trainer calls too. EasyR1 passes the rollouts of a
whole step, in an order of its own, and takes one number for each; `trainers/easyr1/fit.py` explains that number. If a
service does not answer, the job ends with an error; no reward is ever invented.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.challenger import CHALLENGER_REWARDS, ChallengerReward
from core.grading.grader import Grader
from core.methods import Method
from core.rollouts.scoring import learned_from
from core.seeds import seed_for
from core.settings.parsing import parse_method
from core.settings.serving import Signals
from core.types import Scored
from services.inference.client import InferenceClient
from trainers.base import SOLVER_SERVICE, SolverService, TrainQuestion
from trainers.rewards import PromptRollouts, Rewarded, group_seed, reward_challenger, reward_solver
from trainers.rollouts import Sample, sampled_prompts, write_step

REWARD_NAME = "coevo"
REWARD_TYPE = "batch"

Floats = NDArray[np.float64]

# With so many groups of equal prompts, it is no coincidence if each group of rollouts occurs at least twice.
_ENOUGH_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of one prompt: their rows in EasyR1's batch, their texts, and the prompt's `ground_truth`."""

    rows: tuple[int, ...]
    texts: tuple[str, ...]
    prompt: dict[str, Any]

    @property
    def key(self) -> tuple[int, int]:
        return self.prompt["step"], self.prompt["index"]


@dataclass(frozen=True, slots=True)
class RewardJob:
    """The contents of the job file, which `trainers/easyr1/config.py` writes."""

    key: str
    run_seed: int
    steps_before: int
    rollouts: int  # per prompt
    trained: int  # how many of a prompt's rollouts are trained on
    max_tokens: int
    stored_prompts: int  # of each step; their rollouts are written to `rollouts_folder`
    rollouts_folder: str
    patience_s: float  # how long to wait for a service that does not answer, before the job ends
    objective: Method | ChallengerReward
    signals: Signals = field(default_factory=Signals)  # of the Solver's method
    solver: SolverService | None = None  # the service that the Challenger's reward asks
    earlier: Sequence[str] = ()  # of a Challenger's job, as `exact`
    exact: bool = False


def compute_score(reward_inputs: list[dict[str, Any]], job: str) -> list[dict[str, float]]:
    """Score the rollouts of a step, each given as `{"response", "response_length", "ground_truth"}`.

    `job` is the path of the job file. Each result holds `overall`, from which EasyR1's RLOO computes the advantage, and
    figures for EasyR1's log, such as the method's own `reward`, which an undecided rollout lacks. The rollouts of the
    validation that EasyR1 does at its end are not scored: their `overall` is 0.

    Raises:
        ValueError: a prompt does not have the job's number of rollouts, or equal prompts got equal rollouts.
        InferenceError: a service did not answer before its deadline.
    """
    reward_job = _read(Path(job))
    prompts = [json.loads(rollout["ground_truth"]) for rollout in reward_inputs]
    if all("validation" in prompt for prompt in prompts):
        return [{"overall": 0.0} for _ in prompts]
    groups = _group_rollouts([rollout["response"] for rollout in reward_inputs], prompts, reward_job.rollouts)
    with Grader() as grader:
        rewarded = _reward(groups, reward_job, grader)
    clusters = rewarded.clusters or [None] * len(groups)
    advantages = [
        _advantages(group, scored, of_group, reward_job)
        for group, scored, of_group in zip(groups, rewarded.groups, clusters, strict=True)
    ]
    lengths = np.array([rollout["response_length"] for rollout in reward_inputs], dtype=np.float64)
    scale = _scale(groups, advantages, lengths, reward_job)
    if reward_job.stored_prompts:
        _store_rollouts(groups, rewarded, advantages, lengths, reward_job)
    results: list[dict[str, float]] = [{} for _ in reward_inputs]
    for group, scored, (values, trained) in zip(groups, rewarded.groups, advantages, strict=True):
        size = len(group.rows)
        for member, row in enumerate(group.rows):
            results[row] = {
                "overall": float(scale * values[member] * (size - 1) / size),
                **({} if member in scored.undecided else {"reward": float(scored.rewards[member])}),
                "advantage": float(values[member]),
                "learned_from": float(member in trained),
                **rewarded.metrics,  # the same for every rollout, so that EasyR1's mean is the figure itself
            }
    return results


def _read(path: Path) -> RewardJob:
    tree = json.loads(path.read_text(encoding="utf-8"))
    role, reward = tree.pop("role"), tree.pop("reward")
    if role == "challenger":
        solver = SOLVER_SERVICE.validate_python(tree.pop("solver"))
        return RewardJob(**tree, objective=CHALLENGER_REWARDS[reward["type"]].model_validate(reward), solver=solver)
    signals = Signals.model_validate(tree.pop("signals"))
    return RewardJob(**tree, objective=parse_method(reward.pop("type"), reward), signals=signals)


def _group_rollouts(texts: Sequence[str], prompts: Sequence[dict[str, Any]], size: int) -> list[Rollouts]:
    """The rollouts grouped by prompt, in order of step and index.

    Within a group they are sorted by text, so that EasyR1's order has no influence.
    """
    rows_by_key: dict[tuple[int, int], list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows_by_key.setdefault((prompt["step"], prompt["index"]), []).append(row)
    groups = []
    for step, index in sorted(rows_by_key):
        rows = sorted(rows_by_key[step, index], key=lambda row: texts[row])
        if len(rows) != size:
            raise ValueError(f"prompt {index} of step {step}: expected {size} rollouts, got {len(rows)}")
        groups.append(Rollouts(tuple(rows), tuple(texts[row] for row in rows), prompts[rows[0]]))
    return groups


def _reward(groups: Sequence[Rollouts], job: RewardJob, grader: Grader) -> Rewarded:
    if isinstance(job.objective, Method):
        prompts = [
            PromptRollouts(
                TrainQuestion(*(group.prompt[name] for name in ("question_id", "question", "label", "truth"))),
                group.texts,
                _seed(group, job),
            )
            for group in groups
        ]
        return reward_solver(prompts, job.objective, job.signals, grader)
    assert job.solver is not None
    _refuse_repeated(groups)
    seed = partial(seed_for, job.run_seed, job.key, job.steps_before + groups[0].prompt["step"])
    ask = partial(InferenceClient(job.solver.url, "solver", job.patience_s).generate, checkpoint=job.solver.checkpoint)
    return reward_challenger(
        [group.texts for group in groups],
        job.objective,
        job.solver,
        partial(seed, "vote"),
        ask,
        grader,
        draw=seed("reward"),
        earlier=job.earlier,
        exact=job.exact,
    )


def _refuse_repeated(groups: Sequence[Rollouts]) -> None:
    """Raise `ValueError` if equal prompts got equal rollouts, which corrections.py is meant to prevent.

    A step would then hold no more different questions than one group has rollouts. A Challenger that writes the same
    question in all rollouts of a group does not raise it.
    """
    counts = Counter(group.texts for group in groups)
    repeated = min(counts.values()) > 1 and all(len(set(texts)) > 1 for texts in counts)
    if repeated and len(groups) >= _ENOUGH_GROUPS:
        raise ValueError(
            f"step {groups[0].prompt['step']}: expected different rollouts for each of {len(groups)} equal prompts, "
            f"got only {len(counts)} different groups of rollouts: EasyR1 uses the same seed for several requests"
        )


def _advantages(
    group: Rollouts, scored: Scored, clusters: tuple[int, ...] | None, job: RewardJob
) -> tuple[Floats, frozenset[int]]:
    """The advantages of a group's rollouts, and the indices of those that are trained on; the others get 0.

    The rollouts to train on are chosen at random. EasyR1 orders rollouts by length, so the first ones of its batch
    would not be a fair sample. It cannot drop a rollout, but one with the advantage 0 leaves those of the others as
    they are, since these sum to zero among themselves.
    """
    size, (step, index) = len(group.texts), group.key
    values = np.zeros(size)
    trained = list(range(size))
    if job.trained < size:
        seed = seed_for(job.run_seed, job.key, job.steps_before + step, "trained", index)
        trained = sorted(random.Random(seed).sample(trained, job.trained))
    if trained := learned_from(scored, trained, job.objective):
        trained_clusters = [clusters[i] for i in trained] if clusters else None
        values[trained] = job.objective.advantages(scored.rewards[trained], trained_clusters, _seed(group, job))
    return values, frozenset(trained)


def _seed(group: Rollouts, job: RewardJob) -> int:
    step, index = group.key
    return group_seed(job.run_seed, job.key, job.steps_before + step, index)


def _store_rollouts(
    groups: Sequence[Rollouts],
    rewarded: Rewarded,
    advantages: Sequence[tuple[Floats, frozenset[int]]],
    lengths: Floats,
    job: RewardJob,
) -> None:
    """Write the rollouts of some of the step's prompts. EasyR1 tells the reward no entropies.

    As in EasyR1's own figure, a rollout of the largest length counts as cut off.
    """
    samples = [
        [
            Sample(
                text,
                int(lengths[row]),
                "length" if lengths[row] >= job.max_tokens else "stop",
                None,
                float(values[member]) if member in trained else None,
            )
            for member, (row, text) in enumerate(zip(group.rows, group.texts, strict=True))
        ]
        for group, (values, trained) in zip(groups, advantages, strict=True)
    ]
    prompts = sampled_prompts(job.run_seed, job.key, rewarded.contents, job.stored_prompts)
    folder, step = Path(job.rollouts_folder), groups[0].prompt["step"]
    write_step(folder, step, prompts, rewarded.groups, rewarded.contents, samples)


def _scale(
    groups: Sequence[Rollouts],
    advantages: Sequence[tuple[Floats, frozenset[int]]],
    lengths: Floats,
    job: RewardJob,
) -> float:
    """The factor that turns EasyR1's mean over the whole batch into the method's mean over the trained rollouts.

    EasyR1 averages over sequences or over tokens; "max_length" is a mean over tokens up to a constant factor.
    """
    trained_rows = [group.rows[i] for group, (_, trained) in zip(groups, advantages, strict=True) for i in trained]
    tokens, average = float(lengths.sum()), job.objective.loss_average
    if not trained_rows:
        return 0.0
    if average == "sequence":
        return len(lengths) / len(trained_rows)
    if average == "token":
        return tokens / float(lengths[trained_rows].sum())
    return tokens / (len(trained_rows) * float(job.max_tokens))
