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
    names = (
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "tie_word_embeddings",
    )
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


def test_a_model_whose_shape_is_unknown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SizingError, match="got models/Other-9B, which has none"):
        shape_of("models/Other-9B")
    (tmp_path / "config.json").write_text('{"model_type": "mixtral"}')
    with pytest.raises(SizingError, match="model_type: expected one of llama, qwen2, qwen3, got 'mixtral'"):
        shape_of(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("[" * 100_000, "cannot read"),
        ("[]", "model_type: expected one of llama, qwen2, qwen3, got None"),
        ('{"model_type": ["qwen3"]}', r"model_type: expected one of llama, qwen2, qwen3, got \['qwen3'\]"),
        ('{"model_type": "qwen3"}', "hidden_size: "),
        ('{"model_type": "qwen3", "num_attention_heads": 0}', "num_attention_heads: expected more than 0, got 0"),
    ],
)
def test_a_config_that_is_no_model_s_is_refused(tmp_path: Path, config: str, complaint: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(SizingError, match=complaint):
        shape_of(str(tmp_path))
