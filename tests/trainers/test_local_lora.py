"""LoRA: only the adapters learn, a killed training ends with the same bits, and its checkpoint is a model like any
other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from local_loops import reward_tokens, run, train_until
from local_tiny import tiny_job, tiny_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from core.settings.trainers import LocalSettings, Lora
from storage.files.checkpoints import publish, verify
from trainers.base import TrainError
from trainers.local.checkpoints import complete_weights
from trainers.local.lora import add_adapters, merged_state, without_adapters
from trainers.local.state import read_state

LORA = LocalSettings(lora=Lora(rank=2, alpha=8))
IDS = torch.tensor([[3, 9, 5, 30, 12]])


@pytest.fixture
def trained(tmp_path: Path, start: Path) -> Path:
    """The folder of a training with LoRA that went through."""
    job = tiny_job(tmp_path, start)
    run(job, reward=reward_tokens, settings=LORA)
    return job.work_dir


def test_the_checkpoint_computes_what_the_adapted_model_computes(trained: Path, start: Path) -> None:
    from peft import PeftModel

    merged, base = (AutoModelForCausalLM.from_pretrained(folder) for folder in (trained / "final", start))
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(start), trained / "final" / "adapter")
    with torch.no_grad():
        torch.testing.assert_close(merged(IDS).logits, adapted(IDS).logits, atol=1e-5, rtol=1e-5)
        assert (merged(IDS).logits - base(IDS).logits).abs().max() > 0.01
    assert merged.state_dict().keys() == base.state_dict().keys()
    assert merged.lm_head.weight is merged.model.embed_tokens.weight


def test_only_the_adapters_learn(trained: Path, start: Path) -> None:
    final, base = (load_file(folder / "model.safetensors") for folder in (trained / "final", start))
    adapted = {name for name, tensor in base.items() if tensor.ndim == 2 and "embed" not in name}
    assert {name for name in base if not torch.equal(final[name], base[name])} == adapted
    moments = load_file(trained / "step_4" / "optimizer.safetensors")
    assert len(moments) == 3 * 2 * len(adapted)  # two moments and a count, of A and B


def test_a_resumed_training_ends_with_the_same_bits(trained: Path, tmp_path: Path, start: Path) -> None:
    job = replace(tiny_job(tmp_path, start), work_dir=tmp_path / "stopped")
    train_until(job, reward_tokens, 3, settings=LORA)
    run(job, reward=reward_tokens, settings=LORA)
    for file in ("final/model.safetensors", "final/adapter/adapter_model.safetensors", "step_4/optimizer.safetensors"):
        assert (job.work_dir / file).read_bytes() == (trained / file).read_bytes(), file
    assert read_state(job.work_dir / "step_4").metrics[-1]["kl"] == read_state(trained / "step_4").metrics[-1]["kl"]


def test_the_reference_is_the_model_without_its_adapters(tmp_path: Path, start: Path) -> None:
    """With the start as a model of its own for the reference, the training has the same bits."""
    job = tiny_job(tmp_path, start)
    other = replace(job, work_dir=tmp_path / "other", reference=replace(job.start, id="t/base/1"))
    for each in (job, other):
        run(each, reward=reward_tokens, settings=LORA)
    weights = [(each.work_dir / "final" / "model.safetensors").read_bytes() for each in (job, other)]
    assert weights[0] == weights[1]
    kl = [[step["kl"] for step in read_state(each.work_dir / "step_4").metrics] for each in (job, other)]
    assert kl[0] == kl[1]
    assert kl[0][-1] > 0


def test_a_published_checkpoint_holds_the_adapter_too(trained: Path, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    checkpoint = publish(trained / "final", root, run="t", role="solver", iteration=1, step=4, parent=None)
    assert (Path(checkpoint.path) / "adapter" / "adapter_model.safetensors").is_file()
    verify(Path(checkpoint.path), checkpoint.sha256)


def test_new_adapters_change_nothing_and_are_drawn_with_the_seed() -> None:
    models = [tiny_model() for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        torch.manual_seed(seed + 10)  # the generator of the process has no say
        add_adapters(model, Lora(rank=2), seed)
    a, same, other = (model.model.layers[0].self_attn.q_proj.lora_A["default"].weight for model in models)
    assert torch.equal(a, same)
    assert not torch.equal(a, other)
    assert all(torch.equal(value, tiny_model().state_dict()[name]) for name, value in merged_state(models[0]).items())
    with torch.no_grad():
        models[0].model.layers[0].self_attn.q_proj.lora_B["default"].weight.fill_(1.0)
        with without_adapters(models[0]):
            torch.testing.assert_close(models[0](IDS).logits, tiny_model()(IDS).logits, atol=0, rtol=0)
        assert not torch.equal(models[0](IDS).logits, tiny_model()(IDS).logits)


def test_a_layer_that_the_model_lacks_is_refused_by_the_setting() -> None:
    with pytest.raises(TrainError, match=r"trainer\.lora\.targets"):
        add_adapters(tiny_model(), Lora(targets=("qkv_proj",)), 1)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_a_head_that_is_the_embedding_cannot_have_adapters(target: str) -> None:
    """A checkpoint has one tensor for both, so it would be another model than the one that was trained."""
    with pytest.raises(TrainError, match=r"trainer\.lora\.targets: .*same weights"):
        add_adapters(tiny_model(), Lora(rank=2, targets=("q_proj", target)), 1)
    untied = Qwen3ForCausalLM(Qwen3Config(**{**tiny_model().config.to_dict(), "tie_word_embeddings": False}))
    add_adapters(untied, Lora(rank=2, targets=("q_proj", target)), 1)


def test_experts_are_refused_before_the_first_step() -> None:
    sizes = {name: value for name, value in tiny_model().config.to_dict().items() if name.endswith("_size")}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = MixtralForCausalLM(MixtralConfig(**sizes, **heads, num_local_experts=2))
    with pytest.raises(TrainError, match=r"trainer\.lora\.targets: MixtralForCausalLM"):
        add_adapters(model, Lora(rank=2), 1)


def test_each_merged_weight_is_narrowed_before_the_next_is_made() -> None:
    model = tiny_model()
    add_adapters(model, Lora(rank=2), 1)
    adapted = {name: tensor for name, tensor in merged_state(model, torch.bfloat16).items() if "proj" in name}
    assert {(tensor.dtype, tensor.device.type) for tensor in adapted.values()} == {(torch.bfloat16, "cpu")}
    weights = complete_weights(model, True, torch.bfloat16)
    assert weights is not None
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    assert weights.keys() == tiny_model().state_dict().keys()
    assert complete_weights(model, False, torch.bfloat16) is None
