"""A tiny model of every causal architecture of transformers, with random weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

VOCABULARY = 128

# By the names that configurations use. A configuration ignores what it does not know.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "decoder_hidden_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "decoder_ffn_dim", "encoder_ffn_dim"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "feed_forward_size"), 16),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k_experts"), 2),
    **dict.fromkeys(("head_dim", "kv_channels"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 64),
}

# What architectures do to their logits after the output embedding, and values that show.
LOGITS: dict[str, Any] = {
    "final_logit_softcapping": 5.0,
    "logits_soft_cap": 5.0,
    "logit_scale": 0.3,
    "logits_scaling": 3.0,
    "lm_head_multiplier": 0.4,
    "mup_width_multiplier": 2.0,
    "dim_model_base": 8,
}


# Names that an architecture has but does not take, or takes in another meaning, with what it needs instead.
# None leaves the default.
CHANGES: dict[str, dict[str, Any]] = {
    **{
        name: {"head_dim": 16, "qk_rope_head_dim": 16, "n_group": 1, "topk_group": 1}
        for name in ("axk1", "deepseek_v3", "longcat_flash", "youtu")
    },
    **{name: {"rotary_dim": 8} for name in ("codegen", "gptj")},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "attn_layer_indices": [1]},
    "dots1": {"n_shared_experts": 1},
    "falcon": {"head_dim": None},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "lfm2_moe": {"layer_types": ["full_attention", "conv"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "mimo_v2_flash": {"head_dim": 24, "v_head_dim": 16, "layer_types": ["full_attention", "sliding_attention"]},
    "minicpm3": {"logits_scaling": None},
    "zaya": {"num_experts_per_tok": 1},
}

LARGEST = 10_000_000  # parameters

# Architectures of which `tiny` makes no model that runs, and why.
NOT_MADE: dict[str, str] = {
    **dict.fromkeys(
        ("blt", "deepseek_v32", "dots3_note_text", "glm_moe_dsa", "hy_v4", "roc_bert"),
        "more than 10 million parameters, because its sizes have names of their own",
    ),
    **dict.fromkeys(
        (
            "cohere_compass_text",
            "dots3_note",
            "gemma3n_text",
            "gemma4_assistant",
            "gemma4_unified_assistant",
            "granitemoehybrid",
            "mimo_v2_flash",
            "qwen4_exp",
            "qwen4_exp_text",
            "recurrent_gemma",
            "xlstm",
            "zamba",
            "zamba2",
        ),
        "its sizes depend on each other, or on settings of each layer",
    ),
    **dict.fromkeys(
        ("dbrx", "musicgen", "musicgen_melody", "reformer", "xmod"),
        "its default configuration gives no causal model",
    ),
    **dict.fromkeys(
        ("gemma3n",),
        "it needs the package timm",
    ),
}

# Architectures that the embedded trainer refuses, and what does not fit.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "bailing_hybrid",
            "bamba",
            "jamba",
            "kimi_linear",
            "lfm2_moe",
            "lfm3",
            "minimax",
            "nemotron_h",
            "olmo_hybrid",
            "qwen3_5",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
            "qwen3_5_text",
            "qwen3_next",
        ),
        "the state of its linear attention is no cache of keys and values",
    ),
    **dict.fromkeys(
        (
            "bart",
            "bigbird_pegasus",
            "blenderbot",
            "blenderbot-small",
            "deepseek_v4",
            "git",
            "marian",
            "mbart",
            "mvp",
            "pegasus",
            "plbart",
            "rwkv",
            "trocr",
        ),
        "its positions or its state do not allow for padding on the left",
    ),
    **dict.fromkeys(
        (
            "bert",
            "bert-generation",
            "big_bird",
            "camembert",
            "data2vec-text",
            "electra",
            "ernie",
            "megatron-bert",
            "rembert",
            "roberta",
            "roberta-prelayernorm",
            "roformer",
            "xlm-roberta",
            "xlm-roberta-xl",
        ),
        "it is an encoder, whose tokens attend to later ones",
    ),
    **dict.fromkeys(
        ("bloom", "cpmant", "falcon_mamba", "mamba", "mamba2", "mpt", "whisper", "xlnet"),
        "its configuration has no length of a context",
    ),
    **dict.fromkeys(
        ("openai-gpt", "prophetnet", "xlm"),
        "its forward pass takes other arguments, or gives other shapes",
    ),
}


def tiny(model_type: str) -> PreTrainedModel:
    """Raises whatever the model's own code raises, also in a forward pass, and `ValueError` if it is not tiny."""
    config = tiny_config(model_type)
    with torch.device("meta"):
        parameters = AutoModelForCausalLM.from_config(config).num_parameters()
    if parameters > LARGEST:
        raise ValueError(f"{parameters / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from uniform distributions, so that a wrong one shows
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
        model(input_ids=torch.tensor([[3, 4, 5]]))
    return model


def tiny_config(model_type: str) -> PretrainedConfig:
    changes = _changes(AutoConfig.for_model(model_type)) | CHANGES.get(model_type, {})
    return AutoConfig.for_model(model_type, **{name: value for name, value in changes.items() if value is not None})


def _changes(config: PretrainedConfig) -> dict[str, Any]:
    """The values of a tiny model for `config`, and for the configurations inside it."""
    default = config.to_dict()
    values = {
        name: value for name, value in {**SIZES, **LOGITS}.items() if name in default or name in config.attribute_map
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "padding_idx": 0}
    values |= {name: value for name, value in tokens.items() if getattr(config, name, None) is not None}
    if kinds := list(dict.fromkeys(default.get("layer_types") or ())):
        values["layer_types"] = kinds if len(kinds) > 1 else 2 * kinds
        values["num_hidden_layers"] = len(values["layer_types"])
    for name, part in vars(config).items():
        if isinstance(part, PretrainedConfig):
            values[name] = {"model_type": part.model_type, **_changes(part)}
    return values
