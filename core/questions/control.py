"""The control tokens of chat models: texts that open and close turns, thoughts, calls of tools, and documents.

A tokenizer turns such a text into a single special id, wherever it stands. Inside a question, it would look to the
Solver like a turn of another role. So the Challenger's questions may not hold any (`FAMILIES`, and those of the model
at hand), and `services.inference.encoding` encodes what a user's message holds of them as ordinary text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# Single words in angle brackets, with or without a slash.
_ANGLED = (
    r"s|bos|eos|pad|unk|cls|sep|mask|mask:\d+|sop|eop|sos|eod|eom|eot|eoh|eoa|bot|pre|suf|mid|think|thinking|tool|tools|"
    r"image|img|video|audio|speak|role|system|user|assistant|human|answer|ref|box|quad|filename|reponame|startoftext|endoftext|unused\d+|reserved\d+|0x[0-9a-f]{2}"
)
_SQUARE = (
    r"inst|sys|system_prompt|available_tools|tool_calls?|tool_results?|tool_content|args|call_id|think|model_settings|"
    r"img|img_break|img_end|audio|begin_audio|transcribe|multimodal|[gs]?mask|cls|sep|pad|unk|bos|eos|eot|"
    r"user|assistant|system|prefix|suffix|middle|extra_id_\d+|unused\d+|unused_token_\d+|control_\d+"
)
# The control tokens of known families of models, in small letters and with compatible characters unified (NFKC).
FAMILIES = re.compile(
    "|".join(
        (
            r"<\|[^|<>]{0,100}\|>",  # Qwen, Llama 3, Phi, GLM, Cohere, gpt-oss; with full-width signs, DeepSeek
            r"<\|[a-z][^\s|<>]{0,40}>|<[a-z][^\s|<>]{0,40}\|>",  # Gemma 4
            rf"</?(?:{_ANGLED})>",  # Gemma, Llama 2, Mistral, Qwen's thoughts, CodeLlama, InternLM
            # <start_of_turn>, <fim_prefix>, <fim-prefix>, <tool_call>, <extra_id_0>, <[begin_of_text]>
            r"</?\[?(?:im|gh|[a-z]{3,})(?:[_-][a-z0-9]+)+\]?>",
            r"</?function(?:=[^<>]{0,100})?>|</?parameter(?:=[^<>]{0,100})?>",  # Llama's and Qwen's calls of tools
            r"</?[a-z]{3,}:[a-z_]{2,}>",  # Seed, MiniMax
            r"<</?sys>>",  # Llama 2
            rf"\[/?(?:{_SQUARE})\]",  # Llama 2, Mistral, ChatGLM, Kimi, BERT
            r"\[\|(?:system|user|assistant|tool|endofturn)\|\]",  # EXAONE
            r"\]~!?b\[|\]~b\]|\[e~\[|\]![pd]~\[",  # MiniMax
            r">>(?:title|abstract|introduction|summary|comment|answer|question|domain)<<",  # Falcon
        )
    )
)


class ControlTokens:
    """A set of control tokens that can be looked for in a text, also in capitals and in compatible characters."""

    def __init__(self, tokens: Iterable[str]) -> None:
        """Tokens of spaces alone, or of a single character, are texts like any other, and are left out."""
        self._tokens = {folded for token in tokens if len(folded := _folded(token)) > 1 and folded.strip()}
        self._lengths: dict[str, set[int]] = {}  # by first character
        for token in self._tokens:
            self._lengths.setdefault(token[0], set()).add(len(token))

    def starts(self, text: str) -> list[int]:
        """The positions in `text` at which one of the tokens begins."""
        origin = range(len(text)) if text.isascii() else [i for i, char in enumerate(text) for _ in _folded(char)]
        folded = _folded(text)
        starts = {
            origin[i]
            for i, char in enumerate(folded)
            if char in self._lengths and any(folded[i : i + n] in self._tokens for n in self._lengths[char])
        }
        return sorted(starts)


def has_family_token(text: str) -> bool:
    """Whether `text` holds a control token of a known family of models."""
    return FAMILIES.search(_folded(text)) is not None


def _folded(text: str) -> str:
    """The text in small letters, each character replaced by its compatible ones: a full-width bar by a bar."""
    return text.lower() if text.isascii() else "".join(unicodedata.normalize("NFKC", char).lower() for char in text)
