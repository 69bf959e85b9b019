"""A training of EasyR1's own, unmodified code, one worker of it on a CPU, against the embedded trainer.

Runs where `COEVO_EASYR1_SOURCE` names a checkout of the pinned commit and `COEVO_EASYR1_PYTHON` a Python with what it
needs: `make easyr1` builds that, and runs the whole trainer too. What stands in for CUDA, vLLM and flash-attn is in
easyr1_on_a_cpu/; data set, weights' way to the rollouts, reward manager, FSDP, loss, optimiser, checkpoints and merger
are EasyR1's. Two steps of each job: at the second the policy has left its reference, so that a KL shows.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from easyr1_worlds import HERE, PYTHON, challengers, solvers, votes
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.grading.grader import Grader
from core.settings.trainers import EasyR1Settings
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Completion
from tests.fake_service import fake_service
from trainers.base import TrainJob
from trainers.easyr1.checkpoint import merge
from trainers.easyr1.config import render
from trainers.easyr1.corrections import KL
from trainers.local.loop import _Learner, _update
from trainers.local.ranks import Ranks
from trainers.local.rewards import Rewarded, make_reward
from trainers.local.update import Row, make_optimiser
from trainers.schedule import rollouts_at

SOURCE = os.environ.get("COEVO_EASYR1_SOURCE")
STEPS, PROMPTS, ROLLOUTS = 2, 4, 4
STEP = {"steps": STEPS, "prompts_per_step": PROMPTS, "rollouts_per_prompt": ROLLOUTS, "micro_batch": PROMPTS * ROLLOUTS}
# The embedded trainer computes in float32, EasyR1 in bfloat16 with sums in float32: for a comparison of what they
# compute, EasyR1 gets float32 too. `as_rendered` leaves it its bfloat16.
FLOAT32 = ["worker.actor.fsdp.mp_param_dtype=fp32", "worker.ref.fsdp.mp_param_dtype=fp32"]

pytestmark = pytest.mark.skipif(
    SOURCE is None or "COEVO_EASYR1_PYTHON" not in os.environ,
    reason="COEVO_EASYR1_SOURCE, COEVO_EASYR1_PYTHON: no EasyR1 here (make easyr1)",
)


@dataclass(frozen=True)
class Trained:
    """What EasyR1 left, and the job that it was given."""

    job: TrainJob
    out: Path

    def step(self, number: int) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self.out / f"step_{number}.json").read_text())
        return made

    def state(self, number: int, kind: str) -> Any:
        """Of rank 0's part of a step's checkpoint: "model" or "optim". One rank has all of it."""
        actor = self.out / "checkpoints" / f"global_step_{number}" / "actor"
        return torch.load(actor / f"{kind}_world_size_1_rank_0.pt", weights_only=False)

    def gradients(self, number: int) -> dict[str, Tensor]:
        """As AdamW saw them, clipped, by the name of the parameter: from its first moments, of which a step's is 0.9
        of the last and 0.1 of the gradient."""
        now, before = (self._moments(n) if n else {} for n in (number, number - 1))
        return {name: (moment - 0.9 * before.get(name, 0.0)) / 0.1 for name, moment in now.items()}

    def _moments(self, number: int) -> dict[str, Tensor]:
        states = self.state(number, "optim")["state"]
        return {name: local(state["exp_avg"]) for name, state in states.items()}


def local(tensor: Any) -> Tensor:
    """Of one rank, a sharded tensor's share is all of it."""
    whole: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return whole


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trained]]:
    """Two steps of EasyR1's of each job, one after the other in one process."""
    work = tmp_path_factory.mktemp("easyr1")
    whole = EasyR1Settings(gpus_per_node=1, update_micro_batch=PROMPTS * ROLLOUTS, experience_micro_batch=8)
    tokenizer = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    with fake_service(votes) as (service, _):
        jobs = {
            "solver": (solvers(work / "job", "rzero", {"kl_coefficient": 0.05}, **STEP), whole, FLOAT32),
            "kl_in_the_reward": (
                solvers(work / "job", "srt", {"kl_coefficient": 0.05, "loss_average": "token"}, **STEP),
                whole,
                FLOAT32,
            ),
            "challenger": (
                challengers(work / "job", service.url, **STEP),
                whole.model_copy(update={"update_micro_batch": 4}),
                FLOAT32,
            ),
            "as_rendered": (solvers(work / "job", "rzero", {"kl_coefficient": 0.05}, **STEP), whole, []),
        }
        asked = []
        for name, (each, settings, overrides) in jobs.items():
            config = render(each, settings, tokenizer, work / name)
            asked.append({"config": str(config), "steps": STEPS, "out": str(work / name), "overrides": overrides})
        script = HERE / "easyr1_worker.py"
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "HF_HUB_OFFLINE": "1"}
        command = [str(PYTHON), str(script), str(SOURCE), json.dumps(asked)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        yield {name: Trained(each, work / name) for name, (each, _, _) in jobs.items()}


def groups_of(trained: Trained, number: int) -> list[list[int]]:
    """Places in EasyR1's batch, prompt by prompt as the job asks, each in the order of their texts, as the reward has
    them: of two questions the first is the hypothesis of their BLEU."""
    made, texts = trained.step(number), decoded(trained, number)
    known = [json.loads(each)["index"] for each in made["ground_truth"]]
    return [
        sorted((at for at, place in enumerate(known) if place == prompt), key=lambda at: texts[at])
        for prompt in range(PROMPTS)
    ]


def decoded(trained: Trained, number: int) -> list[str]:
    tokenizer: Any = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    return [tokenizer.decode(each, skip_special_tokens=True) for each in trained.step(number)["responses"]]


def rewarded(trained: Trained, number: int) -> Rewarded:
    """What the embedded trainer's rewards make of the rollouts."""
    made, texts = trained.step(number), decoded(trained, number)
    groups = [
        [Completion(texts[at], tuple(made["responses"][at]), (), "stop", 0.0) for at in group]
        for group in groups_of(trained, number)
    ]
    with Grader() as grader:
        return make_reward(trained.job, Ranks(), grader)(number, groups)


def updated(trained: Trained, number: int, earned: Rewarded) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The embedded trainer's figures and clipped gradients for the rollouts, from where EasyR1's step began."""
    made = trained.step(number)
    model, reference = (AutoModelForCausalLM.from_pretrained(MICRO_MODEL, dtype=torch.float32) for _ in range(2))
    if number > 1:
        state = trained.state(number - 1, "model")
        model.load_state_dict({name: local(tensor) for name, tensor in state.items()})
    optimiser = make_optimiser(model, trained.job.training)
    gradients: dict[str, Tensor] = {}

    def keep(*_: Any) -> None:
        gradients.update({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})

    optimiser.register_step_pre_hook(keep)
    learned = [group for group, scored in enumerate(earned.groups) if scored.learn]
    places = [at for group in learned for at in groups_of(trained, number)[group]]
    rows = [Row(made["prompts"][at], made["responses"][at], made["old_log_probs"][at]) for at in places]
    learner = _Learner(trained.job, Ranks(), None, SimpleNamespace(model=model), reference, optimiser)  # type: ignore[arg-type]
    return _update(learner, number, rows, earned, learned), gradients


def apart(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest difference of a parameter's gradient, relative to that gradient's norm."""
    assert found.keys() - {"lm_head.weight"} == expected.keys() - {"lm_head.weight"}
    return max(float((found[name] - expected[name]).norm() / expected[name].norm()) for name in expected)


@pytest.mark.parametrize("name", ["solver", "kl_in_the_reward", "challenger", "as_rendered"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_step_of_easyr1s_is_one_of_the_embedded_trainers(trained: dict[str, Trained], name: str, number: int) -> None:
    """Rewards are equal; log-probabilities, gradients and KL are up to rounding: 1e-3 of a gradient in float32."""
    found = trained[name]
    made, earned = found.step(number), rewarded(found, number)
    rewards = np.array(made["figures"]["reward"])[np.array(groups_of(found, number))]
    assert rewards.tolist() == [scored.rewards.tolist() for scored in earned.groups]
    assert rewards.std() > 0
    figures, gradients = updated(found, number, earned)
    bfloat16 = name == "as_rendered"
    assert figures["sampler_gap"] < (0.02 if bfloat16 else 1e-5)
    assert figures["grad_norm"] > 0
    assert made["metrics"]["actor/grad_norm"] == pytest.approx([figures["grad_norm"]], rel=0.05 if bfloat16 else 1e-4)
    assert apart(found.gradients(number), gradients) < (0.2 if bfloat16 else 1e-3)
    kl = made["metrics"].get(KL)
    if found.job.reward.kl_in == "loss":
        assert kl == pytest.approx([figures["kl"]], rel=0.2 if bfloat16 else 1e-3, abs=1e-7)
    if number == 1:  # the reference is the policy, to the last bit
        assert made["ref_log_probs"] == made["old_log_probs"]


def test_equal_prompts_get_rollouts_of_their_own(trained: dict[str, Trained]) -> None:
    """The Challenger's prompts are all the same."""
    for number in (1, 2):
        made = trained["challenger"].step(number)
        assert len({tuple(prompt) for prompt in made["prompts"]}) == 1
        rollouts = [
            frozenset(map(tuple, (made["responses"][at] for at in group)))
            for group in groups_of(trained["challenger"], number)
        ]
        assert all(a.isdisjoint(b) for i, a in enumerate(rollouts) for b in rollouts[:i])


def test_the_prompts_are_those_of_the_embedded_trainer(trained: dict[str, Trained]) -> None:
    """To the token, by a tokenizer that transformers 5 saved and 4 has read."""
    tokenizer: Any = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    for found in trained.values():
        asked = rollouts_at(found.job, 2)[::ROLLOUTS]
        expected = [
            tokenizer.apply_chat_template(list(p.messages), add_generation_prompt=True, return_dict=True) for p in asked
        ]
        made = found.step(2)
        firsts = [made["prompts"][group[0]] for group in groups_of(found, 2)]
        assert firsts == [each["input_ids"] for each in expected]


def test_its_checkpoint_becomes_a_model(trained: dict[str, Trained], tmp_path: Path) -> None:
    found = trained["solver"]
    settings = EasyR1Settings(python=str(PYTHON), source=str(SOURCE))
    merge(found.out / "checkpoints", STEPS, MICRO_MODEL, settings, tmp_path / "final")
    weights = load_file(tmp_path / "final" / "model.safetensors")
    made = {name: local(tensor) for name, tensor in found.state(STEPS, "model").items()}
    start = load_file(MICRO_MODEL / "model.safetensors")
    assert all(torch.equal(weights[name].float(), made[name].bfloat16().float()) for name in start)
    assert all(not torch.equal(weights[name].float(), start[name].float()) for name in start)
