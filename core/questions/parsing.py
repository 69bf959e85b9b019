"""The parser of the Challenger's reply, and what may not be used as a question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape

from core.grading.answers import extract_boxed
from core.questions.control import ControlTokens, has_family_token
from core.types import QuestionFormat

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_COMMANDS = re.compile(r"\\[A-Za-z]+|</?(?:br|hr|p|div|span) ?/?>")  # of LaTeX, and HTML's tags
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")  # fillers of Hangul: letters in Unicode, but invisible


def parse_question(
    text: str,
    max_chars: int = 2000,
    expected: QuestionFormat = "tags",
    refused: Sequence[str] = (),
    control_tokens: Sequence[str] = (),
) -> str | None:
    """The question in a Challenger rollout, or None when it is malformed.

    A well-formed rollout has `<question>…</question>` (R-Zero 2.2, "Format Check Penalty"); the last such block counts,
    as in the released code. If "tags_and_answer" is expected, a final `\\boxed{}` follows it, as the prompt asks (E.2).
    `max_chars` limits what an untrusted model can put into later prompts. A question without a letter or a digit
    outside of LaTeX's commands is malformed, and so is one that contains one of the texts in `refused`, in upper or lower case, or a control token:
    one of a known family of models, or one of `control_tokens`, those of the model that will be asked.
    """
    inside, after = _last_block(text)
    question = inside.strip()
    if refuse_question(question, max_chars, control_tokens) or any(
        part.lower() in question.lower() for part in refused
    ):
        return None
    return None if expected == "tags_and_answer" and extract_boxed(after) is None else question


def refuse_question(question: str, max_chars: int, control_tokens: Sequence[str] = ()) -> str | None:
    """Why a text may not be used as a question; None if it may."""
    plain = _COMMANDS.sub(" ", unescape(question))
    if question.strip() and not any(char.isalnum() and char not in _BLANK_LETTERS for char in plain):
        return "expected a question with a letter or a digit, got none"
    return refuse_text(question, max_chars, control_tokens)


def refuse_text(text: str, max_chars: int, control_tokens: Sequence[str] = ()) -> str | None:
    """Why an untrusted text may not be put into a prompt; None if it may."""
    if not text.strip():
        return "expected a question, got none"
    if len(text) > max_chars:
        return f"expected at most {max_chars} characters (dataset.max_question_chars), got {len(text)}"
    has_token = has_family_token(text) or (control_tokens and ControlTokens(control_tokens).starts(text))
    if has_token or _CONTROL_CHARACTERS.search(text):
        return "holds control characters, or control tokens of a chat template"
    return None


def _last_block(text: str) -> tuple[str, str]:
    """The content of the last `<question>…</question>` and the text after it; both are "" if there is none.

    This is not a regular expression, which would take quadratic time for thousands of blocks that are never closed.
    """
    pieces = text.split("</question>")
    for i in range(len(pieces) - 2, -1, -1):
        _, opening_tag, inside = pieces[i].partition("<question>")
        if opening_tag:
            return inside, "</question>".join(pieces[i + 1 :])
    return "", ""
