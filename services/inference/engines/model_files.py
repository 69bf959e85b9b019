"""Reads a model folder: its architecture, its tokenizer, and the tokens that end an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from services.inference.encoding import rendered_chat
from services.inference.template_probe import problem_with

# Stands before a chat template that refuses a system message, as Gemma's and Mistral's do, or that leaves it out, and
# puts its text into the first message of the user.
_SYSTEM_INTO_USER = (
    "{%- if messages | length > 1 and messages[0]['role'] == 'system' and messages[1]['role'] == 'user' %}"
    "{%- set asked = messages[0]['content'] + '\n\n' + messages[1]['content'] %}"
    "{%- set messages = [{'role': 'user', 'content': asked}] + messages[2:] %}"
    "{%- endif %}{{ '' }}"  # behind a tag, Jinja would take a line's end off the template's beginning
)
_SYSTEM, _QUESTION = "0 + 0?", "1 + 1?"
_ASKED = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _QUESTION}]


class ChatRefused(ValueError):
    """Raised for a model whose chat template renders no chat that coevo sends."""


def tokenizer_of(folder: Path) -> Any:
    """The tokenizer of the model in `folder`. If its chat template refuses a system message or leaves it out, the
    user's message begins with that text. Of several templates, it is the default one. Raises `ChatRefused` for one that
    refuses this too, leaves out the question, or takes too long or too much memory."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    template = tokenizer.chat_template
    if isinstance(template, dict):  # by name, as for chats with and without tools
        template = tokenizer.chat_template = template.get("default")
    if not isinstance(template, str):
        return tokenizer
    if problem := problem_with(template, json.dumps([_ASKED, _ASKED[1:]])):  # with a system message, and without
        raise ChatRefused(f"{folder}: {problem}")
    try:
        rendered = rendered_chat(tokenizer, _ASKED)
    except TemplateError:
        rendered = ""
    if _SYSTEM not in rendered:
        tokenizer.chat_template = _SYSTEM_INTO_USER + template
        try:
            rendered = rendered_chat(tokenizer, _ASKED)
        except TemplateError as error:
            raise ChatRefused(
                f"{folder}: chat_template: expected one that renders a question of the user, got the error: {error}"
            ) from error
    if _QUESTION not in rendered:
        raise ChatRefused(
            f"{folder}: chat_template: expected one that renders the user's question, got {rendered[:200]!r}"
        )
    return tokenizer


def text_side(folder: Path, generation: Any = None) -> tuple[Any, set[int]]:
    """The tokenizer and the end tokens of the model in `folder`.

    `generation` is the folder's generation configuration, if the caller has loaded it already.
    """
    tokenizer = tokenizer_of(folder)
    try:
        generation = generation or GenerationConfig.from_pretrained(folder)
    except OSError:  # a model without such a file has this one when it is loaded anew
        generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder))
    ends = generation.eos_token_id
    return tokenizer, {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}


# Keys of a model's configuration that do not affect what the model computes.
_NOT_ARCHITECTURE = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "eos_token_id"}


def architecture(config: Any) -> dict[str, Any]:
    """The part of a model's configuration that determines what the model computes."""
    return {name: value for name, value in config.to_dict().items() if name not in _NOT_ARCHITECTURE}
