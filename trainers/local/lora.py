"""LoRA by PEFT: adapters in a model, their files, and the weights with the adapters merged into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.settings.trainers import Lora
from trainers.base import TrainError

ADAPTER = "adapter"  # the folder of the adapters' files, beside the model's
_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."  # of the tensors' names in PEFT's files
_MINE = "lora_"  # in the names of the adapters' parameters


def add_adapters(model: Any, lora: Lora, seed: int) -> None:
    """Give the model adapters and freeze everything else. `A` is drawn with `seed`, and `B` is 0.

    Raises `TrainError` if the model has no layer of `lora.targets`.
    """
    from peft import LoraConfig, inject_adapter_in_model  # here, because the import takes seconds

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, task_type="CAUSAL_LM")
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            inject_adapter_in_model(config, model)
    except ValueError as error:
        raise TrainError(f"trainer.lora.targets: {type(model).__name__} cannot take {targets}: {error}") from error
    _refuse_unmergeable(model, targets)


def refuse_targets(folder: Path, lora: Lora) -> None:
    """Raise `TrainError` if the model in `folder` cannot have the adapters. Its weights are not read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    add_adapters(model, lora, seed=0)


def _refuse_unmergeable(model: Any, targets: str | list[str]) -> None:
    """Raise `TrainError` for adapters whose sums no checkpoint of this architecture can hold: of a head that is the
    embedding, and of experts, whose weights are one tensor."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = model.config.get_text_config().tie_word_embeddings
    for layer in _adapted_layers(model):
        if tied and layer in (head, embedding):
            reason = "its head and its embedding are the same weights, which cannot have adapters"
        elif not isinstance(getattr(layer.base_layer, "weight", None), Tensor):
            reason = f"the weights of a {type(layer.get_base_layer()).__name__} are not those of one layer"
        else:
            continue
        raise TrainError(f"trainer.lora.targets: {type(model).__name__} cannot take {targets}: {reason}")


def has_adapters(model: Any) -> bool:
    return hasattr(model, "peft_config")


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Let the model compute as it was before it got adapters, if it has any."""
    for layer in _adapted_layers(model):
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in _adapted_layers(model):
            layer.enable_adapters(True)


def save_adapters(model: Any, folder: Path) -> None:
    """Write the adapters to a new folder, in PEFT's format, which `PeftModel.from_pretrained` reads."""
    from peft import get_peft_model_state_dict

    folder.mkdir()
    tensors = get_peft_model_state_dict(model)
    save_file({_PREFIX + name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, folder / _FILE)
    model.peft_config["default"].save_pretrained(folder)


def load_adapters(model: Any, folder: Path) -> None:
    """Load what `save_adapters` wrote."""
    from peft import set_peft_model_state_dict

    tensors = load_file(folder / _FILE)
    set_peft_model_state_dict(model, {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()})


@torch.no_grad()
def merged_state(model: Any, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """The model's weights with the adapters merged into them, by the names that they have without adapters.

    Tied weights are one tensor under two names. The sums are on the CPU, and with `dtype` have this type: a GPU has no
    room for nearly all weights once more.
    """
    state = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if f".{_MINE}" not in name
    }
    for name, layer in model.named_modules():
        if hasattr(layer, "base_layer"):
            merged = layer.base_layer.weight + layer.get_delta_weight("default")
            state[f"{name}.weight"] = merged.to("cpu", dtype)
    return state


def _adapted_layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "base_layer")]
