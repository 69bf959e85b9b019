"""A model's shape gives its number of parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from orchestrator.check.size.shapes import PUBLISHED, Shape, SizingError, shape_of
from orchestrator.installation.home import MICRO_MODEL


def parameters_built(shape: Shape) -> int:
    """The number of parameters of a model that transformers builds from the shape, without allocating memory."""
    kind = Qwen3Config if shape.normed_heads else Qwen2Config if shape.attention_bias else LlamaConfig
    sizes = ("hidden_size", "num_hidden_layers", "intermediate_size", "head_dim", "vocab_size")
    names = (*sizes, "num_attention_heads", "num_key_value_heads", "tie_word_embeddings")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(kind(**{name: getattr(shape, name) for name in names}))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_model_that_transformers_builds(name: str) -> None:
    assert PUBLISHED[name].parameters == parameters_built(PUBLISHED[name])


def test_a_shape_is_read_from_the_model_s_config() -> None:
    shape = shape_of(str(MICRO_MODEL))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(MICRO_MODEL))
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert shape.kv_bytes(4) == 2 * 4 * 1 * 32 * 4


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (None, "got models/Other-9B, which has none"),
        ("[" * 100_000, "cannot read"),
        ("[]", "model_type: .*None"),
        ('{"model_type": ["qwen3"]}', "model_type: "),
        ('{"model_type": "mixtral"}', "model_type: expected one of llama, qwen2, qwen3, got 'mixtral'"),
        ('{"model_type": "qwen3"}', "hidden_size: "),
        ('{"model_type": "qwen3", "num_attention_heads": 0}', "num_attention_heads: "),
    ],
)
def test_a_model_whose_shape_is_not_known_is_refused(tmp_path: Path, config: str | None, complaint: str) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(SizingError, match=complaint):
        shape_of("models/Other-9B" if config is None else str(tmp_path))
