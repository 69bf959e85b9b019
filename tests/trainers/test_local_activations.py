"""A worker saves memory when it computes activations again and samples fewer answers at a time; the results stay the
same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from local_loops import reward_tokens, train_until
from local_tiny import VOCABULARY, tiny_job, tiny_model
from safetensors.torch import load_file
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from transformers import Qwen3Config, Qwen3ForCausalLM

from core.settings.trainers import LocalSettings
from services.inference.engines.embedded import TransformersEngine
from trainers.local import loop
from trainers.local.activations import ATTENTION, checkpoint_layers, save_attention_memory
from trainers.local.grpo import token_logprobs
from trainers.local.rewards import Completions
from trainers.rewards import Rewarded

IDS = torch.randint(3, VOCABULARY, (3, 40), generator=torch.Generator().manual_seed(1))
MASK = (torch.arange(40) >= 5).expand(3, 40)


def gradients(model: Qwen3ForCausalLM, logprobs_of: Any = token_logprobs) -> tuple[Tensor, dict[str, Tensor]]:
    """The log-probabilities, and the gradient of their sum and the entropies' by each parameter."""
    model.zero_grad()
    logprobs, entropies = logprobs_of(model, IDS, MASK, 0.7, entropy_gradient=True)
    (logprobs.sum() + entropies.sum()).backward()
    return logprobs.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(
    computed: tuple[Tensor, dict[str, Tensor]], expected: tuple[Tensor, dict[str, Tensor]]
) -> None:
    assert expected[1].keys() == dict(tiny_model().named_parameters()).keys()
    torch.testing.assert_close(computed, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_are_the_same_where_activations_are_computed_again(dropout: float) -> None:
    model = tiny_model()
    expected = gradients(model)
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = dropout  # it acts in train mode only
    checkpoint_layers(model)
    assert_same_gradients(gradients(model), expected)


@pytest.mark.parametrize("tokens", [1, 4, 104])  # of all 105 response tokens
def test_gradients_are_the_same_where_logits_are_computed_in_parts(tokens: int) -> None:
    model = tiny_model()
    in_parts = partial(token_logprobs, largest_logits=tokens * VOCABULARY)
    assert_same_gradients(gradients(model, in_parts), gradients(model))


def model_of(layers: int, checkpointed: bool) -> Qwen3ForCausalLM:
    tree = {**tiny_model().config.to_dict(), "num_hidden_layers": layers, "layer_types": None}
    model = Qwen3ForCausalLM(Qwen3Config(**tree)).eval()
    if checkpointed:
        checkpoint_layers(model)
    return model


def saved_bytes(model: Qwen3ForCausalLM) -> int:
    """The bytes that a forward pass through the layers saves for the gradients, beside the parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        output = model.get_decoder()(input_ids=IDS, use_cache=False).last_hidden_state
    assert output.requires_grad
    return sum(saved.values())


def test_checkpointed_layers_save_only_their_inputs() -> None:
    """Four more layers, checkpointed, save no more than the input of each layer."""
    whole, spared = (
        saved_bytes(model_of(6, checkpointed)) - saved_bytes(model_of(2, checkpointed))
        for checkpointed in (False, True)
    )
    assert whole > 10 * 4 * 4 * 16 * IDS.numel()  # ten times 16 float32 numbers a layer and token
    assert spared <= 4 * 4 * 16 * IDS.numel()


class RecordingEngine(TransformersEngine):
    """An engine that records the `max_rows` of every instance."""

    max_rows_given: ClassVar[list[int]] = []

    def __init__(self, folder: Path, device: str = "cpu", max_rows: int = 512) -> None:
        super().__init__(folder, device, max_rows)
        self.max_rows_given.append(max_rows)


def sampled_in(work: Path, start: Path, settings: LocalSettings, steps: int = 4) -> list[Completions]:
    """Run a job of four steps in `work`, until it has done `steps`; returns the completions of each step."""
    sampled: list[Completions] = []

    def reward(step: int, completions: Completions) -> Rewarded:
        sampled.append(completions)
        return reward_tokens(step, completions)

    train_until(tiny_job(work, start, learning_rate=1e-3), reward, steps, settings=settings)
    return sampled


SPARING = LocalSettings(sampling_rows=2, checkpoint_activations=True)
FINAL = "job/final/model.safetensors"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, start: Path) -> tuple[Path, list[Completions]]:
    work = tmp_path_factory.mktemp("plain")
    return work, sampled_in(work, start, LocalSettings())


def test_a_job_that_saves_memory_has_the_same_rollouts_and_weights(
    tmp_path: Path, start: Path, plain: tuple[Path, list[Completions]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollouts are equal to the last bit, sampled two at a time or all at once; the weights are equal up to
    rounding, where a step of AdamW is about 1e-3."""
    monkeypatch.setattr(loop, "TransformersEngine", RecordingEngine)
    RecordingEngine.max_rows_given.clear()
    sparing = sampled_in(tmp_path, start, SPARING)
    assert RecordingEngine.max_rows_given == [2, 2]  # the policy's engine and the reference's
    assert (len(sparing), sparing[0]) == (4, plain[1][0])
    weights, expected = (load_file(work / FINAL) for work in (tmp_path, plain[0]))
    torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-3)


def test_a_job_can_be_resumed_with_other_memory_settings(
    tmp_path: Path, start: Path, plain: tuple[Path, list[Completions]]
) -> None:
    assert len(sampled_in(tmp_path, start, LocalSettings(), steps=2)) == 2
    assert len(sampled_in(tmp_path, start, SPARING)) == 2
    weights, expected = (load_file(work / FINAL) for work in (tmp_path, plain[0]))
    torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-3)


def test_attention_with_repeated_keys_is_the_same(tmp_path: Path) -> None:
    """This holds for whole sequences, as in training, and token by token, as in sampling."""
    model = tiny_model()
    assert model.config._attn_implementation == "sdpa"
    expected, sampled = gradients(model), model.generate(IDS, max_new_tokens=8, do_sample=False)
    model.set_attn_implementation(ATTENTION)
    assert_same_gradients(gradients(model), expected)
    assert model.generate(IDS, max_new_tokens=8, do_sample=False).tolist() == sampled.tolist()
    model.save_pretrained(tmp_path)
    assert ATTENTION not in (tmp_path / "config.json").read_text()


def test_attention_is_replaced_on_other_devices_than_a_cpu_only() -> None:
    on_cpu, elsewhere = tiny_model(), tiny_model().to("meta")
    for model in (on_cpu, elsewhere):
        save_attention_memory(model)
    assert [model.config._attn_implementation for model in (on_cpu, elsewhere)] == ["sdpa", ATTENTION]
