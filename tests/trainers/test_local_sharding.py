"""Two workers that share a model out between them: each holds its half, and together they do what two whole ones do."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_tiny import save_tiny, tiny_job, tiny_model, without_timings
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3ForCausalLM
from two_ranks import Pair

from core.methods.evol_rl import EvolRl
from core.settings.trainers import LocalSettings
from core.settings.training import Sampling
from core.types import Scored
from services.inference.engines.embedded import TransformersEngine
from trainers.base import TrainJob
from trainers.local.activations import checkpoint_layers
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions, Rewarded
from trainers.local.sharding import is_sharded, logprobs_of, shard, whole
from trainers.local.state import Metrics
from trainers.local.update import Row, make_optimiser, update

PLAIN, SPARING = LocalSettings(), LocalSettings(sampling_rows=2, checkpoint_activations=True)
WEIGHTS, OPTIMISER = "model.safetensors", "optimizer.safetensors"


def untied_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tiny_model().config.vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def tied(start: Path) -> Path:
    return start


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("untied"), untied_model())


def job_in(work: Path, start: Path, **training: Any) -> TrainJob:
    """Three rows a mini-batch and one a micro batch: the first rank has two of them, the second one. Two passes over
    two mini-batches, of which all but the first are clipped against the policy that sampled."""
    settings: dict[str, Any] = {
        "reward": EvolRl(trained_share=1.0, kl_coefficient=0.1, entropy_coefficient=0.1, clip_low=1e-3, clip_high=1e-3),
        "learning_rate": 1e-3,
        "prompts_per_step": 2,
        "rollouts_per_prompt": 3,
        "prompts_per_update": 1,
        "updates_per_step": 2,
        "micro_batch": 1,
        "sampling": Sampling(top_p=1.0, max_tokens=8),
    }
    job = tiny_job(work, **{**settings, **training})
    return replace(job, start=replace(job.start, path=str(start)))


def any_tokens(step: int, completions: Completions) -> Rewarded:
    """A reward that tells rollouts apart, whatever a model says."""
    groups = [[sum(one.tokens) % 7 / 7 for one in group] for group in completions]
    return Rewarded([Scored(None, np.array(rewards)) for rewards in groups], {})


def trained(ranks: Ranks, job: TrainJob, steps: int | None = None, settings: LocalSettings = PLAIN) -> list[Metrics]:
    """The steps that rank 0 reports until the job's end, or until it has done `steps`."""
    seen: list[Metrics] = []
    train(
        job,
        any_tokens,
        ranks=ranks,
        device="cpu",
        report=seen.append,
        stopped=lambda: len(seen) == steps,
        settings=settings,
    )
    return without_timings(seen)


def alone(job: TrainJob) -> list[Metrics]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = trained(Ranks(), job)
    torch.set_num_threads(threads)
    return found


def assert_near(job: TrainJob, other: TrainJob) -> None:
    """The last checkpoints of two jobs, weights and moments: to 1e-5, where a step of AdamW is about 1e-3."""
    for file in (f"final/{WEIGHTS}", f"step_4/{WEIGHTS}", f"step_4/{OPTIMISER}"):
        found, expected = (load_file(each.work_dir / file) for each in (job, other))
        assert list(found) == list(expected)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@dataclass(frozen=True)
class Done:
    job: TrainJob
    metrics: list[Metrics]


def finished(work: Path, start: Path, pair: Pair, sharded: bool, settings: LocalSettings = PLAIN) -> Done:
    job = job_in(work / str(sharded), start, workers=2, sharded=sharded)
    metrics, silent = pair(trained, job, None, settings)
    assert not silent  # the second rank reports nothing
    return Done(job, metrics)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, pair: Pair, tied: Path) -> Done:
    """A job of two workers that have the whole model each."""
    return finished(tmp_path_factory.mktemp("held"), tied, pair, sharded=False)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, pair: Pair, tied: Path) -> Done:
    """The same of two that share it out."""
    return finished(tmp_path_factory.mktemp("shared"), tied, pair, sharded=True)


def assert_same_but_for_rounding(found: Done, expected: Done) -> None:
    """Not to the bit: FSDP adds each micro batch's gradient over the ranks, and then these up, where whole ranks add up
    their own first; and a norm of shares is summed in another order. To 1e-5, where a step of AdamW is about 1e-3."""
    assert [one["step"] for one in found.metrics] == [1, 2, 3, 4]
    for metrics, others in zip(found.metrics, expected.metrics, strict=True):
        assert metrics == pytest.approx(others, abs=1e-5)
        assert metrics["zero_advantage_share"] < 1
    assert max(one["clip_share"] for one in found.metrics) > 0
    assert found.metrics[-1]["kl"] > 1e-4
    assert_near(found.job, expected.job)
    finals = [done.job.work_dir / "final" for done in (found, expected)]
    names, others = ({file.name for file in folder.iterdir()} for folder in finals)
    assert names == others
    for name in names - {WEIGHTS}:
        assert (finals[0] / name).read_bytes() == (finals[1] / name).read_bytes(), name


def test_sharing_changes_nothing_but_rounding(held: Done, shared: Done) -> None:
    assert_same_but_for_rounding(shared, held)
    loaded = AutoModelForCausalLM.from_pretrained(shared.job.work_dir / "final")
    assert type(loaded) is Qwen3ForCausalLM


def test_nor_where_the_head_is_not_the_embedding(tmp_path: Path, pair: Pair, untied: Path) -> None:
    whole_ranks, halves = (finished(tmp_path, untied, pair, sharded) for sharded in (False, True))
    assert_same_but_for_rounding(halves, whole_ranks)
    assert "lm_head.weight" in load_file(halves.job.work_dir / "final" / WEIGHTS)


@pytest.mark.parametrize("sharded", [False, True])
def test_nor_do_activations_that_are_made_again(
    tmp_path: Path, pair: Pair, tied: Path, held: Done, sharded: bool
) -> None:
    sparing = finished(tmp_path, tied, pair, sharded, SPARING)
    assert_same_but_for_rounding(sparing, held)


def test_a_job_that_stopped_goes_on_to_the_same_bits(tmp_path: Path, pair: Pair, tied: Path, shared: Done) -> None:
    job = job_in(tmp_path, tied, workers=2, sharded=True)
    first, _ = pair(trained, job, 2)
    assert not (job.work_dir / "final").exists()
    second, _ = pair(trained, job)
    assert (len(first), first + second) == (2, shared.metrics)
    for file in (f"final/{WEIGHTS}", f"step_4/{WEIGHTS}", f"step_4/{OPTIMISER}"):
        assert (job.work_dir / file).read_bytes() == (shared.job.work_dir / file).read_bytes(), file


def test_either_goes_on_from_the_other_s_checkpoint(tmp_path: Path, pair: Pair, held: Done, shared: Done) -> None:
    def from_step_2(done: Done, name: str, **training: Any) -> TrainJob:
        """The same job in another place and other hands, with half of it done."""
        work = tmp_path / name
        shutil.copytree(done.job.work_dir / "step_2", work / "step_2")
        return replace(done.job, work_dir=work, training=done.job.training.model_copy(update=training))

    single, whole_ranks = from_step_2(shared, "single", workers=1), from_step_2(shared, "whole", sharded=False)
    halves = from_step_2(held, "halves", sharded=True)
    assert len(alone(single)) == 2  # a single worker has nobody to share with: the setting says nothing to it
    assert [len(pair(trained, job)[0]) for job in (whole_ranks, halves)] == [2, 2]
    for job in (single, whole_ranks, halves):
        assert_near(job, held.job)


def local_numbers(tensors: Sequence[Tensor]) -> int:
    """How many numbers this process has memory for, of tensors that must be sharded."""
    locals_ = [tensor.to_local() for tensor in tensors if isinstance(tensor, DTensor)]
    assert len(locals_) == len(tensors)
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in locals_}
    return sum(storages.values()) // 4


def shares(ranks: Ranks, start: Path) -> dict[str, int]:
    model = TransformersEngine(start).model
    checkpoint_layers(model)  # whose second forward pass gathers nothing that stays
    shard(model, ranks.size)
    job = job_in(Path("unused"), start, workers=2)
    optimiser, rows = make_optimiser(model, job.training), [Row([3, 4], [5], [0.0]), Row([3], [6, 7], [0.0, 0.0])]
    update(model, model, optimiser, rows, job.training, EvolRl(), lambda kl: [1.0] * len(kl), ranks=ranks)
    parameters, states = list(model.parameters()), optimiser.state.values()
    return {
        "weights": local_numbers(parameters),
        "gradients": local_numbers([p.grad for p in parameters if p.grad is not None]),
        "first moments": local_numbers([state["exp_avg"] for state in states]),
        "second moments": local_numbers([state["exp_avg_sq"] for state in states]),
    }


def test_each_has_memory_for_its_own_half_only(pair: Pair, tied: Path) -> None:
    """Halves are of each tensor's rows; where their number is odd one rank has a row less, and padding for it."""
    first, second = pair(shares, tied)
    parameters = list(tiny_model().parameters())
    count = sum(-(-len(p) // 2) * p[0].numel() for p in parameters)
    most = max(p[0].numel() for p in parameters)
    for held in (first, second):
        assert held.keys() == {"weights", "gradients", "first moments", "second moments"}
        assert all(count - most <= numbers <= count for numbers in held.values()), held
    assert count < 0.51 * sum(p.numel() for p in parameters)


def bytes_of_tensors(ranks: Ranks, job: TrainJob) -> int:
    """The most that this process's tensors take, all of them, between the sampling and the update of a step."""
    gc.collect()
    before, most = _tensor_bytes(), 0

    def reward(step: int, completions: Completions) -> Rewarded:
        nonlocal most
        gc.collect()
        most = max(most, _tensor_bytes())
        return any_tokens(step, completions)

    train(job, reward, ranks=ranks, device="cpu", report=lambda _: None, stopped=lambda: False)
    return most - before


def _tensor_bytes() -> int:
    storages = {}
    for found in gc.get_objects():
        if issubclass(type(found), Tensor) and not issubclass(type(found), DTensor) and found.device.type == "cpu":
            storages[found.untyped_storage().data_ptr()] = found.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(("sharded", "each"), [(False, 16), (True, 16 / 2)])
def test_a_job_s_worker_holds_half_of_what_it_held(
    tmp_path: Path, pair: Pair, tied: Path, sharded: bool, each: float
) -> None:
    """Weights, AdamW's two moments and the reference: 16 bytes a parameter. What else there is, is small."""
    job = job_in(tmp_path, tied, steps=2, workers=2, sharded=sharded)
    parameters = sum(parameter.numel() for parameter in tiny_model().parameters())
    for found in pair(bytes_of_tensors, job):
        assert found == pytest.approx(each * parameters, rel=0.05)


def decoded(ranks: Ranks, start: Path) -> tuple[list[Tensor], list[bool], Tensor]:
    """Two forward passes on the first rank and five on the second; then one together."""
    model = TransformersEngine(start).model
    shard(model, ranks.size)
    ids, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[False, True, True]])
    with whole(model), torch.inference_mode():
        logits = [model(ids).logits for _ in range((2, 5)[ranks.rank])]
        sharded = [isinstance(parameter, DTensor) for parameter in model.parameters()]
    sharded += [not isinstance(parameter, DTensor) for parameter in model.parameters()]
    with torch.no_grad():
        together, _ = logprobs_of(model, ids, mask, 1.0)
    return logits, sharded, together


def test_ranks_sample_for_different_numbers_of_steps(pair: Pair, untied: Path) -> None:
    model = TransformersEngine(untied).model
    assert not is_sharded(model)
    ids, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[False, True, True]])
    with torch.no_grad():
        expected, other = model(ids).logits, logprobs_of(model, ids, mask, 1.0)[0]
    for logits, sharded, together in pair(decoded, untied):
        for found in logits:
            torch.testing.assert_close(found, expected, atol=0, rtol=0)
        assert not any(sharded)
        torch.testing.assert_close(together, other, atol=0, rtol=0)
