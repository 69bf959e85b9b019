"""A training by EasyR1's own, unmodified code, in one worker on a CPU, compared with the embedded trainer.

The tests run where `COEVO_EASYR1_SOURCE` names a checkout of the pinned commit and `COEVO_EASYR1_PYTHON` a Python with
its requirements: `make easyr1` prepares both, and runs the whole trainer too. The replacements of CUDA, vLLM and
flash-attn are in easyr1_on_a_cpu/. The data set, the transfer of weights to the rollouts, the reward manager, FSDP, the
loss, the optimiser, checkpoints and the merger are EasyR1's. Each job takes two steps: at the second one the policy has
left its reference, so that there is a KL.
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
from easyr1_worlds import HERE, PYTHON, challenger_job, solver_job, votes
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
from trainers.local.rewards import make_reward
from trainers.local.update import Row, make_optimiser
from trainers.rewards import Rewarded
from trainers.schedule import rollouts_at

SOURCE = os.environ.get("COEVO_EASYR1_SOURCE")
STEPS, PROMPTS, ROLLOUTS = 2, 4, 4
STEP = {"steps": STEPS, "prompts_per_step": PROMPTS, "rollouts_per_prompt": ROLLOUTS, "micro_batch": PROMPTS * ROLLOUTS}
# The embedded trainer computes in float32, EasyR1 in bfloat16 with sums in float32. To compare their arithmetic, EasyR1
# uses float32 too, except in the job `as_rendered`.
FLOAT32 = ["worker.actor.fsdp.mp_param_dtype=fp32", "worker.ref.fsdp.mp_param_dtype=fp32"]

pytestmark = pytest.mark.skipif(
    SOURCE is None or "COEVO_EASYR1_PYTHON" not in os.environ,
    reason="COEVO_EASYR1_SOURCE, COEVO_EASYR1_PYTHON: no EasyR1 here (make easyr1)",
)


@dataclass(frozen=True)
class Trained:
    """A job, and the folder with EasyR1's results."""

    job: TrainJob
    out: Path

    def step(self, number: int) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.out / f"step_{number}.json").read_text())
        return record

    def state(self, number: int, kind: str) -> Any:
        """The "model" or "optim" part of a step's checkpoint by rank 0, which is the only rank and has all of it."""
        actor = self.out / "checkpoints" / f"global_step_{number}" / "actor"
        return torch.load(actor / f"{kind}_world_size_1_rank_0.pt", weights_only=False)

    def gradients(self, number: int) -> dict[str, Tensor]:
        """The clipped gradients that AdamW used, by parameter. They are computed from its first moments: a step's
        moment is 0.9 of the last moment plus 0.1 of the gradient."""
        now, before = (self._moments(n) if n else {} for n in (number, number - 1))
        return {name: (moment - 0.9 * before.get(name, 0.0)) / 0.1 for name, moment in now.items()}

    def _moments(self, number: int) -> dict[str, Tensor]:
        states = self.state(number, "optim")["state"]
        return {name: local(state["exp_avg"]) for name, state in states.items()}


def local(tensor: Any) -> Tensor:
    """The whole tensor: with one rank, a sharded tensor's local part is all of it."""
    whole: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return whole


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trained]]:
    """Two steps of each job by EasyR1, one job after the other in one process."""
    work = tmp_path_factory.mktemp("easyr1")
    one_batch = EasyR1Settings(gpus_per_node=1, update_micro_batch=PROMPTS * ROLLOUTS)
    tokenizer = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    with fake_service(votes) as (service, _):
        solver = solver_job(work / "job", "rzero", {"kl_coefficient": 0.05}, **STEP)
        in_reward = solver_job(work / "job", "srt", {"kl_coefficient": 0.05, "loss_average": "token"}, **STEP)
        challenger = challenger_job(work / "job", service.url, **STEP)
        jobs = {
            "solver": (solver, one_batch, FLOAT32),
            "kl_in_the_reward": (in_reward, one_batch, FLOAT32),
            "challenger": (challenger, one_batch.model_copy(update={"update_micro_batch": 4}), FLOAT32),
            "as_rendered": (solver, one_batch, []),
        }
        commands = []
        for name, (job, settings, overrides) in jobs.items():
            config = render(job, settings, tokenizer, work / name)
            commands.append({"config": str(config), "steps": STEPS, "out": str(work / name), "overrides": overrides})
        script = HERE / "easyr1_worker.py"
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "HF_HUB_OFFLINE": "1"}
        command = [str(PYTHON), str(script), str(SOURCE), json.dumps(commands)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        yield {name: Trained(job, work / name) for name, (job, _, _) in jobs.items()}


def batch_indices(trained: Trained, number: int) -> list[list[int]]:
    """The rows of EasyR1's batch, prompt by prompt in the job's order. A prompt's rows are sorted by their texts, as
    the reward sorts them, because of two questions the first is the hypothesis of their BLEU."""
    record, texts = trained.step(number), decode_responses(trained, number)
    known = [json.loads(truth)["index"] for truth in record["ground_truth"]]
    return [
        sorted((row for row, prompt_index in enumerate(known) if prompt_index == prompt), key=lambda row: texts[row])
        for prompt in range(PROMPTS)
    ]


def decode_responses(trained: Trained, number: int) -> list[str]:
    tokenizer: Any = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    return [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in trained.step(number)["responses"]]


def local_rewards(trained: Trained, number: int) -> Rewarded:
    """The embedded trainer's rewards of the same rollouts."""
    record, texts = trained.step(number), decode_responses(trained, number)
    groups = [
        [Completion(texts[row], tuple(record["responses"][row]), (), "stop", 0.0) for row in group]
        for group in batch_indices(trained, number)
    ]
    with Grader() as grader:
        return make_reward(trained.job, Ranks(), grader)(number, groups)


def local_update(trained: Trained, number: int, earned: Rewarded) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The embedded trainer's figures and clipped gradients for the same rollouts and the weights before EasyR1's
    step."""
    record = trained.step(number)
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
    rows_learned_from = [row for group in learned for row in batch_indices(trained, number)[group]]
    rows = [
        Row(record["prompts"][row], record["responses"][row], record["old_log_probs"][row]) for row in rows_learned_from
    ]
    engine: Any = SimpleNamespace(model=model)
    learner = _Learner(trained.job, Ranks(), None, engine, None, reference, optimiser)  # type: ignore[arg-type]
    figures, _ = _update(learner, number, rows, earned, learned)
    return figures, gradients


def largest_difference(gradients: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest difference of a parameter's gradient, relative to that gradient's norm."""
    assert gradients.keys() - {"lm_head.weight"} == expected.keys() - {"lm_head.weight"}
    return max(float((gradients[name] - expected[name]).norm() / expected[name].norm()) for name in expected)


@pytest.mark.parametrize("name", ["solver", "kl_in_the_reward", "challenger", "as_rendered"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_step_of_easyr1_equals_one_of_the_embedded_trainer(
    trained: dict[str, Trained], name: str, number: int
) -> None:
    """Rewards are equal; log-probabilities, gradients and KL are equal up to rounding, 1e-3 of a gradient in
    float32."""
    result = trained[name]
    record, earned = result.step(number), local_rewards(result, number)
    rewards = np.array(record["figures"]["reward"])[np.array(batch_indices(result, number))]
    assert rewards.tolist() == [scored.rewards.tolist() for scored in earned.groups]
    assert rewards.std() > 0
    figures, gradients = local_update(result, number, earned)
    bfloat16 = name == "as_rendered"
    assert figures["sampler_gap"] < (0.02 if bfloat16 else 1e-5)
    assert figures["grad_norm"] > 0
    assert record["metrics"]["actor/grad_norm"] == pytest.approx([figures["grad_norm"]], rel=0.05 if bfloat16 else 1e-4)
    assert largest_difference(result.gradients(number), gradients) < (0.2 if bfloat16 else 1e-3)
    kl = record["metrics"].get(KL)
    if result.job.reward.kl_in == "loss":
        assert kl == pytest.approx([figures["kl"]], rel=0.2 if bfloat16 else 1e-3, abs=1e-7)
    if number == 1:  # at the first step the reference is the policy, to the last bit
        assert record["ref_log_probs"] == record["old_log_probs"]


def test_equal_prompts_get_different_rollouts(trained: dict[str, Trained]) -> None:
    """The Challenger's prompts are all equal."""
    for number in (1, 2):
        record = trained["challenger"].step(number)
        assert len({tuple(prompt) for prompt in record["prompts"]}) == 1
        rollouts = [
            frozenset(map(tuple, (record["responses"][row] for row in group)))
            for group in batch_indices(trained["challenger"], number)
        ]
        assert all(a.isdisjoint(b) for i, a in enumerate(rollouts) for b in rollouts[:i])


def test_the_prompts_are_those_of_the_embedded_trainer(trained: dict[str, Trained]) -> None:
    """The tokens are equal, though transformers 5 saved the tokenizer and transformers 4 has read it."""
    tokenizer: Any = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    for result in trained.values():
        prompts = rollouts_at(result.job, 2)[::ROLLOUTS]
        expected = [
            tokenizer.apply_chat_template(list(p.messages), add_generation_prompt=True, return_dict=True)
            for p in prompts
        ]
        record = result.step(2)
        firsts = [record["prompts"][group[0]] for group in batch_indices(result, 2)]
        assert firsts == [chat["input_ids"] for chat in expected]


def test_an_easyr1_checkpoint_becomes_a_model(trained: dict[str, Trained], tmp_path: Path) -> None:
    result = trained["solver"]
    settings = EasyR1Settings(python=str(PYTHON), source=str(SOURCE))
    merge(result.out / "checkpoints", STEPS, MICRO_MODEL, settings, tmp_path / "final")
    weights = load_file(tmp_path / "final" / "model.safetensors")
    trained_weights = {name: local(tensor) for name, tensor in result.state(STEPS, "model").items()}
    start = load_file(MICRO_MODEL / "model.safetensors")
    assert all(torch.equal(weights[name].float(), trained_weights[name].bfloat16().float()) for name in start)
    assert all(not torch.equal(weights[name].float(), start[name].float()) for name in start)
