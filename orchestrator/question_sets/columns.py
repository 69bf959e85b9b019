"""What the columns of a file of questions hold: a question, also as a list of messages, and its true answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from core.errors import CoevoError
from core.grading.boxes import extract_boxed, is_placeholder
from core.texts.unicode import from_json
from orchestrator.question_sets.rows import shortened

# What programs write for a value that is missing or is no number, in small letters if they are written in any. A
# mathematical infinity is written "\\infty". The last two stand in NuminaMath for questions without an answer.
_NO_ANSWERS = frozenset(
    [
        *("nan", "none", "null", "nil", "nat", "<na>", "n/a", "n.a.", "NA", "#n/a", "#na", "1.#qnan", "1.#ind"),
        *("inf", "infinity", "notfound", "proof"),
    ]
)
_USER = ("user", "human")  # the second is ShareGPT's name of the role
_MESSAGES = re.compile(r"""\s*\[\s*\{\s*["'](?:role|content|from|value)["']\s*:""")
_MARK = "####"  # GSM8K's, before the answer of a worked solution


def required(
    read: Callable[[Any], str | None], row: Mapping[str, Any], column: str, position: str, error: type[CoevoError]
) -> str:
    """What `read`, one of the functions below, finds in a row's column. Raises `error`, a class, if that is nothing."""
    if (text := optional(read, row, column, position, error)) is None:
        raise _refused("expected a text or a number, got none", row, column, position, error)
    return text


def optional(
    read: Callable[[Any], str | None], row: Mapping[str, Any], column: str, position: str, error: type[CoevoError]
) -> str | None:
    """As `required`, but None if there is nothing."""
    try:
        return read(value_of(row, column))
    except ValueError as problem:
        raise _refused(problem, row, column, position, error) from problem


def _refused(
    problem: object, row: Mapping[str, Any], column: str, position: str, error: type[CoevoError]
) -> CoevoError:
    return error(f"{position}: column {column!r}: {problem}; the columns are {columns_in(row)}")


def value_of(row: Mapping[str, Any], column: str) -> Any:
    """What a row has in a column, or in a part of one: `reward_model.ground_truth`. None if there is nothing."""
    if column in row:
        return row[column]
    value: Any = row
    for part in column.split("."):
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = _from_json(value)
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _from_json(text: str) -> Any:
    """What a text has as JSON, which some files keep in a column of texts; None if it is not JSON."""
    try:
        return from_json(text)
    except json.JSONDecodeError:
        return None


def columns_in(row: Mapping[str, Any]) -> str:
    """The names of a row's columns and of their parts, for a message."""
    return shortened(", ".join(map(repr, _names(row))))


def _names(row: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from _names(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def text_of(value: Any) -> str | None:
    """A text or a number as a text; None if it is missing, blank or invisible. Raises `ValueError` for anything else.

    NaN is a missing value, as pandas writes it.
    """
    if value is None or (isinstance(value, float | Decimal) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError(f"expected a text or a number, got {shown(value)}")  # noqa: TRY004 (a file's fault)
    if isinstance(value, float | Decimal) and math.isinf(value):
        raise ValueError(f"expected a number that is finite, got {shown(value)}")
    text = str(value)
    return text if any(character.isprintable() and not character.isspace() for character in text) else None


def question_of(value: Any) -> str | None:
    """The question in a column: a text, or the message of the user in a list of messages, as DAPO has it.

    The run's own template takes the place of a system message. None if there is nothing. Raises `ValueError` for
    anything else, such as a chat of several turns or an image.
    """
    if isinstance(value, str) and _MESSAGES.match(value) and (value := _from_json(text := value)) is None:
        raise ValueError(f"expected a text, or messages as JSON, got {shown(text)}")
    if isinstance(value, Mapping):
        if isinstance(value.get("content"), list) and isinstance(value.get("role"), list):  # as Arrow stores some lists
            value = [dict(zip(value, parts, strict=False)) for parts in zip(*value.values(), strict=False)]
        elif "role" in value or "from" in value:
            value = [value]
    if not isinstance(value, list):
        return text_of(value)
    questions = []
    for message in value:
        role = (message.get("role") or message.get("from")) if isinstance(message, Mapping) else None
        if not isinstance(role, str):
            raise ValueError(f"expected messages with a role and a text, got {shown(message)}")  # noqa: TRY004 (as above)
        if role.casefold() in _USER:
            content = message.get("value") if message.get("content") is None else message["content"]
            parts = content if isinstance(content, list) else [content]
            texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
            if any(not isinstance(text, str) for text in texts):
                raise ValueError(f"expected messages with a role and a text, got {shown(message)}")
            questions.append("".join(map(str, texts)))
    if len(questions) != 1:
        raise ValueError(f"expected a text, or messages with one of the user, got {shown(value)}")
    return questions[0]


def answer_of(value: Any) -> str | None:
    """The true answer in a column; several of a list are one answer, a list with commas between them.

    Of a worked solution, it is the answer that the solution marks: in its last `\\boxed{}`, as MATH has it, or behind
    `####`, as GSM8K has it. A list may also be JSON in a text, as Skywork has it. None if there is nothing. Raises
    `ValueError` for what is no answer: a number that is not finite, a placeholder, and a word that programs write for
    nothing.
    """
    if isinstance(value, str) and value.lstrip().startswith('["'):
        value = _from_json(value) or value
    if isinstance(value, list):
        answers = []
        for part in value:
            if isinstance(part, list) or (answer := answer_of(part)) is None:
                raise ValueError(f"expected answers, got {shown(part)} among them")
            answers.append(answer)
        return ", ".join(answers) or None
    text = text_of(value)
    if text is not None and isinstance(value, str):
        text = extract_boxed(text) or text_of(text.rpartition(_MARK)[2].strip() if _MARK in text else text)
    word = "" if text is None else text.strip().lstrip("+-")
    if text is not None and (is_placeholder(text) or word in _NO_ANSWERS or word.casefold() in _NO_ANSWERS):
        raise ValueError(f"expected an answer, got {shown(value)}")
    return text


def shown(value: Any) -> str:
    """A value of a file for a message."""
    return repr(str(value)[:80])
