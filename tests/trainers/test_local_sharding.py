"""Two workers that shard a model: each has half of it, and together they train as two workers with whole models do."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from local_loops import reward_tokens, run, train_until
from local_tiny import save_tiny, tiny_job, tiny_model
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3ForCausalLM
from two_ranks import Pair

from core.methods.evol_rl import EvolRl
from core.settings.trainers import LocalSettings
from core.settings.training import Sampling
from services.inference.engines.embedded import TransformersEngine
from trainers.base import Rounds, TrainJob
from trainers.local.activations import checkpoint_layers
from trainers.local.batches import Row
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions
from trainers.local.sharding import is_sharded, logprobs_of, shard, unsharded
from trainers.local.state import Metrics
from trainers.local.update import make_optimiser, update
from trainers.rewards import Rewarded

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
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("untied"), untied_model())


def job_in(work: Path, start: Path, **training: Any) -> TrainJob:
    """A job with three rows a mini-batch and one a micro batch: the first rank has two of them, the second one.
    The second of its two mini-batches is clipped against the policy that sampled."""
    settings: dict[str, Any] = {
        "reward": EvolRl(trained_share=1.0, kl_coefficient=0.1, entropy_coefficient=0.1, clip_high=1e-3).model_copy(
            update={"clip_low": 1e-3}
        ),
        "learning_rate": 1e-3,
        "prompts_per_step": 2,
        "rollouts_per_prompt": 3,
        "prompts_per_update": 1,
        "micro_batch": 1,
        "sampling": Sampling(top_p=1.0, max_tokens=8),
    }
    return tiny_job(work, start, **{**settings, **training})


def train_on(ranks: Ranks, job: TrainJob, steps: int | None = None, settings: LocalSettings = PLAIN) -> list[Metrics]:
    return train_until(job, reward_tokens, steps, ranks, settings=settings)


def assert_near(job: TrainJob, other: TrainJob) -> None:
    """The last checkpoints of two jobs have equal weights and moments up to 1e-5; a step of AdamW is about 1e-3."""
    for file in (f"final/{WEIGHTS}", f"step_4/{WEIGHTS}", f"step_4/{OPTIMISER}"):
        weights, expected = (load_file(either_job.work_dir / file) for either_job in (job, other))
        assert list(weights) == list(expected)
        torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-3)


@dataclass(frozen=True)
class Finished:
    job: TrainJob
    metrics: list[Metrics]


def train_pair(work: Path, start: Path, pair: Pair, sharded: bool, settings: LocalSettings = PLAIN) -> Finished:
    job = job_in(work / str(sharded), start, workers=2, sharded=sharded)
    metrics, silent = pair(train_on, job, None, settings)
    assert not silent  # the second rank reports nothing
    return Finished(job, metrics)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, pair: Pair, start: Path) -> Finished:
    """A finished job of two workers that each have the whole model."""
    return train_pair(tmp_path_factory.mktemp("held"), start, pair, sharded=False)


@pytest.fixture(scope="module")
def sharded_job(tmp_path_factory: pytest.TempPathFactory, pair: Pair, start: Path) -> Finished:
    """The same job, finished by two workers that shard the model."""
    return train_pair(tmp_path_factory.mktemp("shared"), start, pair, sharded=True)


def assert_same_but_for_rounding(finished: Finished, expected: Finished) -> None:
    """The jobs are equal up to 1e-5, where a step of AdamW is about 1e-3, but not to the bit. FSDP adds each micro
    batch's gradient over the ranks and then adds these up, while ranks with whole models add up their own first; and
    the norm of shards is summed in another order."""
    assert [step["step"] for step in finished.metrics] == [1, 2, 3, 4]
    for metrics, others in zip(finished.metrics, expected.metrics, strict=True):
        assert metrics == pytest.approx(others, abs=1e-5)
        assert metrics["zero_advantage_share"] < 1
    assert max(step["clip_share"] for step in finished.metrics) > 0
    assert finished.metrics[-1]["kl"] > 1e-4
    assert_near(finished.job, expected.job)
    finals = [either_job.job.work_dir / "final" for either_job in (finished, expected)]
    names, others = ({file.name for file in folder.iterdir()} for folder in finals)
    assert names == others
    for name in names - {WEIGHTS}:
        assert (finals[0] / name).read_bytes() == (finals[1] / name).read_bytes(), name


def test_a_sharded_job_equals_a_whole_one_up_to_rounding(whole: Finished, sharded_job: Finished) -> None:
    assert_same_but_for_rounding(sharded_job, whole)
    loaded = AutoModelForCausalLM.from_pretrained(sharded_job.job.work_dir / "final")
    assert type(loaded) is Qwen3ForCausalLM


def test_a_sharded_model_whose_head_is_not_its_embedding_equals_a_whole_one_up_to_rounding(
    tmp_path: Path, pair: Pair, untied: Path
) -> None:
    whole_ranks, halves = (train_pair(tmp_path, untied, pair, sharded) for sharded in (False, True))
    assert_same_but_for_rounding(halves, whole_ranks)
    assert "lm_head.weight" in load_file(halves.job.work_dir / "final" / WEIGHTS)


def test_activations_that_are_computed_again_change_nothing_but_rounding(
    tmp_path: Path, pair: Pair, start: Path, whole: Finished
) -> None:
    """test_local_activations.py and test_local_trainer.py show it for workers that have the whole model."""
    assert_same_but_for_rounding(train_pair(tmp_path, start, pair, sharded=True, settings=SPARING), whole)


def test_a_stopped_sharded_job_ends_with_the_same_bits(
    tmp_path: Path, pair: Pair, start: Path, sharded_job: Finished
) -> None:
    job = job_in(tmp_path, start, workers=2, sharded=True)
    first, _ = pair(train_on, job, 2)
    assert not (job.work_dir / "final").exists()
    second, _ = pair(train_on, job)
    assert (len(first), first + second) == (2, sharded_job.metrics)
    for file in (f"final/{WEIGHTS}", f"step_4/{WEIGHTS}", f"step_4/{OPTIMISER}"):
        assert (job.work_dir / file).read_bytes() == (sharded_job.job.work_dir / file).read_bytes(), file


def test_sharded_and_whole_jobs_resume_from_each_other_s_checkpoints(
    tmp_path: Path, pair: Pair, whole: Finished, sharded_job: Finished
) -> None:
    def from_step_2(done: Finished, name: str, **training: Any) -> TrainJob:
        """The same job in another folder and with other settings, with its first two steps done."""
        work = tmp_path / name
        shutil.copytree(done.job.work_dir / "step_2", work / "step_2")
        return replace(done.job, work_dir=work, training=done.job.training.model_copy(update=training))

    single, whole_ranks = (
        from_step_2(sharded_job, "single", workers=1),
        from_step_2(sharded_job, "whole", sharded=False),
    )
    halves = from_step_2(whole, "halves", sharded=True)
    assert len(train_on(Ranks(), single)) == 2  # a single worker ignores the setting `sharded`
    assert [len(pair(train_on, job)[0]) for job in (whole_ranks, halves)] == [2, 2]
    for job in (single, whole_ranks, halves):
        assert_near(job, whole.job)


def test_a_sharded_round_goes_on_from_the_optimiser_of_a_whole_one(
    tmp_path: Path, pair: Pair, start: Path, whole: Finished
) -> None:
    """The published moments do not depend on the sharding, and each rank takes its share of them."""
    end = whole.job.work_dir
    rounds = Rounds(8, replace(whole.job.start, path=str(end / "step_4")))
    start = replace(whole.job.start, path=str(end / "final"))
    halves, whole_ranks = (
        replace(job, start=start, reference=whole.job.start, steps_before=4, rounds=rounds)
        for job in (job_in(tmp_path / name, start, workers=2, sharded=name == "halves") for name in ("halves", "whole"))
    )
    for job in (halves, whole_ranks):
        pair(train_on, job)
    assert_near(halves, whole_ranks)
    moments = [load_file(job.work_dir / "optimiser" / OPTIMISER) for job in (halves, whole_ranks)]
    assert [of_job["0.step"].item() for of_job in moments] == [2 * 8, 2 * 8]  # two rounds of 4 steps, 2 updates each


def local_numbers(tensors: Sequence[Tensor]) -> int:
    """How many numbers of these tensors, which must be sharded, this process has in memory."""
    locals_ = [tensor.to_local() for tensor in tensors if isinstance(tensor, DTensor)]
    assert len(locals_) == len(tensors)
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in locals_}
    return sum(storages.values()) // 4


def shares(ranks: Ranks, start: Path) -> dict[str, int]:
    model = TransformersEngine(start).model
    checkpoint_layers(model)  # the second forward pass must not leave gathered weights in memory
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


def test_each_rank_has_memory_for_its_own_half_only(pair: Pair, start: Path) -> None:
    """Each tensor's rows are halved; where their number is odd, one rank has a row less, and padding for it."""
    first, second = pair(shares, start)
    parameters = list(tiny_model().parameters())
    count = sum(-(-len(p) // 2) * p[0].numel() for p in parameters)
    most = max(p[0].numel() for p in parameters)
    for numbers_of_rank in (first, second):
        assert numbers_of_rank.keys() == {"weights", "gradients", "first moments", "second moments"}
        assert all(count - most <= numbers <= count for numbers in numbers_of_rank.values()), numbers_of_rank
    assert count < 0.51 * sum(p.numel() for p in parameters)


def bytes_of_tensors(ranks: Ranks, job: TrainJob) -> int:
    """The most bytes that all tensors of this process take between the sampling and the update of a step."""
    gc.collect()
    before, most = _tensor_bytes(), 0

    def reward(step: int, completions: Completions) -> Rewarded:
        nonlocal most
        gc.collect()
        most = max(most, _tensor_bytes())
        return reward_tokens(step, completions)

    run(job, reward=reward, ranks=ranks)
    return most - before


def _tensor_bytes() -> int:
    storages = {}
    for value in gc.get_objects():
        if issubclass(type(value), Tensor) and not issubclass(type(value), DTensor) and value.device.type == "cpu":
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(("sharded", "bytes_each"), [(False, 16), (True, 16 / 2)])
def test_a_worker_of_a_sharded_job_needs_half_of_the_memory(
    tmp_path: Path, pair: Pair, start: Path, sharded: bool, bytes_each: float
) -> None:
    """Weights, AdamW's two moments and the reference take 16 bytes a parameter; everything else is small."""
    job = job_in(tmp_path, start, steps=2, workers=2, sharded=sharded)
    parameters = sum(parameter.numel() for parameter in tiny_model().parameters())
    for most in pair(bytes_of_tensors, job):
        assert most == pytest.approx(bytes_each * parameters, rel=0.05)


def forward_passes(ranks: Ranks, start: Path) -> tuple[list[Tensor], list[bool], Tensor]:
    """Two forward passes on the first rank and five on the second, unsharded; then one on both together."""
    model = TransformersEngine(start).model
    shard(model, ranks.size)
    ids, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[False, True, True]])
    with unsharded(model), torch.inference_mode():
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
    for logits, sharded, together in pair(forward_passes, untied):
        for output in logits:
            torch.testing.assert_close(output, expected, atol=0, rtol=0)
        assert not any(sharded)
        torch.testing.assert_close(together, other, atol=0, rtol=0)
