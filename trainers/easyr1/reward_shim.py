"""The reward function that EasyR1 loads: `reward_shim.py:compute_score`.

It runs in EasyR1's environment, in the process that EasyR1 gives its reward to, and imports `core`, the inference
client and `trainers.rewards`, which the embedded trainer calls too. EasyR1 hands over a whole step's rollouts in an
order of its own, and takes one number each; what that number is, `trainers/easyr1/fit.py` says. A service that stays
away ends the job: no reward is ever made up.
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

from core.grading.grader import Grader
from core.methods import Method
from core.methods.rzero import ChallengerReward
from core.questions.prompts import parse_question
from core.seeds import seed_for
from core.settings.parsing import parse_method
from core.settings.serving import Signals
from core.settings.training import Sampling
from core.types import Scored
from services.inference.client import InferenceClient
from trainers import rewards
from trainers.base import SolverService, TrainQuestion

REWARD_NAME = "coevo"
REWARD_TYPE = "batch"

Floats = NDArray[np.float64]

_ENOUGH_GROUPS = 8  # of equal prompts: that each of so many occurs twice is no chance


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of one prompt: their places in EasyR1's batch, what they say, and what is known of the prompt."""

    places: tuple[int, ...]
    texts: tuple[str, ...]
    known: dict[str, Any]

    @property
    def key(self) -> tuple[int, int]:
        return self.known["step"], self.known["index"]


@dataclass(frozen=True, slots=True, eq=False)
class Earned:
    """What the step's rollouts earned, prompt by prompt, and the step's figures."""

    scored: list[Scored]
    clusters: list[tuple[int, ...] | None]
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the job's file says: see `trainers/easyr1/config.py`."""

    key: str
    run_seed: int
    steps_before: int
    rollouts: int  # a prompt
    trained: int  # of them
    max_tokens: int
    patience_s: float  # before a service that does not answer ends the job
    objective: Method | ChallengerReward
    signals: Signals = field(default_factory=Signals)  # of the Solver's method
    solver: SolverService | None = None  # whom the Challenger's reward asks


def compute_score(reward_inputs: list[dict[str, Any]], job: str) -> list[dict[str, float]]:
    """For each of `{"response", "response_length", "ground_truth"}` its `overall`, which EasyR1's RLOO makes its
    advantage of, and figures by their own names: `reward` is the method's. `job` is the path of the job's file.

    The validation that EasyR1 does at its end has nothing to tell: 0.

    Raises:
        ValueError: the batch is not whole groups of the job's size, or equal prompts got equal rollouts.
        InferenceError: a service did not answer before its deadline.
    """
    asked = _read(Path(job))
    known = [json.loads(given["ground_truth"]) for given in reward_inputs]
    if all("validation" in given for given in known):
        return [{"overall": 0.0} for _ in known]
    groups = _grouped([given["response"] for given in reward_inputs], known, asked.rollouts)
    earn = _solver if isinstance(asked.objective, Method) else _challenger
    with Grader() as grader:
        earned = earn(groups, asked, grader)
    by_group = list(zip(groups, earned.scored, earned.clusters, strict=True))
    made = [_advantages(group, scored, clusters, asked) for group, scored, clusters in by_group]
    lengths = np.array([given["response_length"] for given in reward_inputs], dtype=np.float64)
    scale = _scale(groups, made, lengths, asked)
    scores: list[dict[str, float]] = [{} for _ in reward_inputs]
    for (group, scored, _), (values, taken) in zip(by_group, made, strict=True):
        size = len(group.places)
        for member, row in enumerate(group.places):
            scores[row] = {
                "overall": float(scale * values[member] * (size - 1) / size),
                "reward": float(scored.rewards[member]),
                "advantage": float(values[member]),
                "learned_from": float(member in taken),
                **earned.figures,  # the same for every rollout, so the mean that EasyR1 logs is the figure itself
            }
    return scores


def _read(path: Path) -> Asked:
    tree = json.loads(path.read_text(encoding="utf-8"))
    role, reward = tree.pop("role"), tree.pop("reward")
    if role == "challenger":
        service = tree.pop("solver")
        solver = SolverService(**service | {"sampling": Sampling.model_validate(service["sampling"])})
        return Asked(**tree, objective=ChallengerReward.model_validate(reward), solver=solver)
    signals = Signals.model_validate(tree.pop("signals"))
    return Asked(**tree, objective=parse_method(reward.pop("type"), reward), signals=signals)


def _grouped(texts: Sequence[str], known: Sequence[dict[str, Any]], size: int) -> list[Rollouts]:
    """The groups in order of step and place; within one by text, which EasyR1's order has no part in."""
    by_key: dict[tuple[int, int], list[int]] = {}
    for row, facts in enumerate(known):
        by_key.setdefault((facts["step"], facts["index"]), []).append(row)
    groups = []
    for key in sorted(by_key):
        places = sorted(by_key[key], key=lambda row: texts[row])
        if len(places) != size:
            raise ValueError(f"prompt {key[1]} of step {key[0]}: expected {size} rollouts, got {len(places)}")
        groups.append(Rollouts(tuple(places), tuple(texts[row] for row in places), known[places[0]]))
    return groups


def _solver(groups: Sequence[Rollouts], asked: Asked, grader: Grader) -> Earned:
    method = asked.objective
    assert isinstance(method, Method)
    prompts = [
        rewards.PromptRollouts(
            TrainQuestion(*(group.known[name] for name in ("question_id", "question", "label", "truth"))), group.texts
        )
        for group in groups
    ]
    scored = rewards.solver_scores(prompts, method, asked.signals, grader)
    figures = rewards.solver_figures([prompt.question for prompt in prompts], scored, grader)
    return Earned([of_group for _, of_group in scored], [group.clusters for group, _ in scored], figures)


def _challenger(groups: Sequence[Rollouts], asked: Asked, grader: Grader) -> Earned:
    """R-Zero 2.2: the Solver answers each well-formed question m times; the whole step is one batch of questions."""
    config, service = asked.objective, asked.solver
    assert isinstance(config, ChallengerReward)
    assert service is not None
    _refuse_repeated(groups)
    questions = [parse_question(text, service.max_question_chars) for group in groups for text in group.texts]
    well_formed = [(i, question) for i, question in enumerate(questions) if question is not None]
    step = asked.steps_before + groups[0].known["step"]
    seed = partial(seed_for, asked.run_seed, asked.key, step, "vote")
    ask = rewards.make_ask(InferenceClient(service.url, "solver", asked.patience_s), service.checkpoint)
    votes = rewards.solver_votes(well_formed, config, service, seed, ask, grader)
    labels = dict(zip((i for i, _ in well_formed), votes, strict=True))
    scored, figures = rewards.challenger_groups(questions, labels, config, asked.rollouts)
    return Earned(scored, [None] * len(groups), figures)


def _refuse_repeated(groups: Sequence[Rollouts]) -> None:
    """Raise `ValueError` when equal prompts got equal rollouts, which corrections.py is to prevent: a step would ask as
    many questions as one group has rollouts. A Challenger that always writes the same is not meant."""
    counts = Counter(group.texts for group in groups)
    repeated = min(counts.values()) > 1 and all(len(set(texts)) > 1 for texts in counts)
    if repeated and len(groups) >= _ENOUGH_GROUPS:
        raise ValueError(
            f"step {groups[0].known['step']}: expected rollouts of their own for each of {len(groups)} equal prompts, "
            f"got {len(counts)} different groups: EasyR1 samples with the same seed again and again"
        )


def _advantages(
    group: Rollouts, scored: Scored, clusters: tuple[int, ...] | None, asked: Asked
) -> tuple[Floats, frozenset[int]]:
    """The advantages of a group, 0 for those that only vote, and who is trained on.

    Those are drawn: EasyR1's order goes by length, and the first ones of it would not be draws like any others.
    """
    size, (step, index) = len(group.texts), group.key
    values = np.zeros(size)
    if not scored.learn:
        return values, frozenset()
    taken = list(range(size))
    if asked.trained < size:
        seed = seed_for(asked.run_seed, asked.key, asked.steps_before + step, "trained", index)
        taken = sorted(random.Random(seed).sample(taken, asked.trained))
    of_taken = [clusters[i] for i in taken] if clusters else None
    values[taken] = asked.objective.advantages(scored.rewards[taken], of_taken)
    return values, frozenset(taken)


def _scale(
    groups: Sequence[Rollouts], made: Sequence[tuple[Floats, frozenset[int]]], lengths: Floats, asked: Asked
) -> float:
    """What makes EasyR1's mean over the whole batch the method's mean over what is learned from.

    EasyR1 averages over sequences or over tokens; "max_length" is a mean over tokens but for a constant.
    """
    learned = [group.places[i] for group, (_, taken) in zip(groups, made, strict=True) for i in taken]
    tokens, average = float(lengths.sum()), asked.objective.loss_average
    if not learned:
        return 0.0
    if average == "sequence":
        return len(lengths) / len(learned)
    return tokens / (float(lengths[learned].sum()) if average == "token" else len(learned) * float(asked.max_tokens))
