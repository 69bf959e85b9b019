"""How a chat becomes token ids, the same for the engines, the trainer and the vLLM application.

A tokenizer looks for its added tokens in the whole text that the chat template makes, so a control token that somebody
wrote into a message would become its special id. What a user's message holds of them is therefore encoded as ordinary
text: the message is split within each of them. A chat without any has the ids that `apply_chat_template` gives. The
system message and the assistant's turns come from the run's settings and are not split.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from jinja2 import TemplateError

from core.questions.control import ControlTokens
from services.inference.template_probe import LONGEST

_LONGEST = 100  # characters of a control token; the tiny model has whole prompts as tokens
_SPLIT = "\uf8f0\uf8f1"  # in Unicode's private area; marks where a user's message is split
_known: WeakKeyDictionary[Any, ControlTokens] = WeakKeyDictionary()  # by tokenizer


def encode_chat(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The ids of a chat up to the beginning of the assistant's answer. Raises `TemplateError`."""
    split = _split_messages(tokenizer, messages)
    text = rendered_chat(tokenizer, split)
    return [
        token
        for piece in (text.split(_SPLIT) if split != list(messages) else [text])
        for token in tokenizer(piece, add_special_tokens=False)["input_ids"]
    ]


def rendered_chat(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of a chat up to the beginning of the assistant's answer. Raises `TemplateError` for every error of the
    template, and for a text that no model has room for."""
    try:
        text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except TemplateError:
        raise
    except Exception as error:  # of any kind, such as a division by zero: the template is a program
        raise TemplateError(f"{type(error).__name__}: {str(error)[:200]}") from error
    if len(text) > LONGEST:
        raise TemplateError(f"expected at most {LONGEST:,} characters, got {len(text):,}")
    return text


def holds_control_tokens(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a user's message holds a control token of the tokenizer."""
    return _split_messages(tokenizer, messages) != list(messages)


def _split_messages(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, with a mark after the first character of each control token in a user's message."""
    if tokenizer not in _known:  # all added tokens, whether the tokenizer calls them special (`</think>` often is not)
        added = [token.content for token in tokenizer.added_tokens_decoder.values()]
        _known[tokenizer] = ControlTokens([*added, *tokenizer.all_special_tokens])
    tokens = _known[tokenizer]
    return [
        {**message, "content": _split(message["content"], tokens)} if message["role"] == "user" else message
        for message in messages
    ]


def _split(content: Any, tokens: ControlTokens) -> Any:
    """The content of a message is a text, or for vLLM also a list of parts."""
    if isinstance(content, str):
        starts = [0, *(start + 1 for start in tokens.starts(content)), len(content)]
        return _SPLIT.join(content[start:end] for start, end in pairwise(starts))
    return [{**part, "text": _split(part["text"], tokens)} if "text" in part else part for part in content or ()]


def control_tokens(folder: Path) -> tuple[str, ...]:
    """The control tokens of the model in `folder`, which no question may hold: its special tokens, and the added tokens
    that its chat template names. Empty for a folder without a tokenizer's files, as of a service elsewhere.

    The files are read as JSON, because importing transformers takes seconds.
    """
    tokenizer, settings = (
        json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for path in (folder / "tokenizer.json", folder / "tokenizer_config.json")
    )
    added = [*tokenizer.get("added_tokens", ()), *settings.get("added_tokens_decoder", {}).values()]
    template = str(settings.get("chat_template", ""))
    if (folder / "chat_template.jinja").is_file():
        template += (folder / "chat_template.jinja").read_text(encoding="utf-8")
    named = [settings.get(f"{name}_token") for name in ("bos", "eos", "pad", "unk", "sep", "cls", "mask")]
    texts = [token["content"] if isinstance(token, dict) else token for token in named if token]
    texts += [token["content"] for token in added if token.get("special") or token["content"].strip() in template]
    return tuple(
        dict.fromkeys(text for text in texts if 2 < len(text.strip()) <= _LONGEST and not text.strip().isalnum())
    )
