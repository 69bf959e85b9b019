"""What the columns of a file of questions hold: a question, also as a list of messages, and its true answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from core.errors import CoevoError
from orchestrator.question_sets.rows import shortened

# What programs write for a value that is missing or is no number. A mathematical infinity is written "\\infty".
_NO_ANSWERS = ("nan", "none", "null", "<na>", "n/a", "inf", "infinity")
_ROLES = {"human": "user", "gpt": "assistant"}  # ShareGPT's names


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
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


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
    """A text or a number as a text; None if it is missing or blank. Raises `ValueError` for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError(f"expected a text or a number, got {shown(value)}")  # noqa: TRY004 (a file's fault)
    return str(value) if str(value).strip() else None


def question_of(value: Any) -> str | None:
    """The question in a column: a text, or the message of the user in a list of messages, as DAPO has it.

    The run's own template takes the place of a system message. None if there is nothing. Raises `ValueError` for
    anything else, such as a chat of several turns or an image.
    """
    if isinstance(value, Mapping) and isinstance(value.get("content"), list):  # a sequence, as Arrow stores some
        value = [dict(zip(value, parts, strict=False)) for parts in zip(*value.values(), strict=False)]
    if not isinstance(value, list):
        return text_of(value)
    questions = [content for role, content in map(_message, value) if role == "user"]
    if len(questions) != 1:
        raise ValueError(f"expected a text, or messages with one of the user, got {shown(value)}")
    return questions[0]


def _message(message: Any) -> tuple[str, str]:
    """The role and the text of a chat's message."""
    role, content = (
        (message.get("role", message.get("from")), message.get("content", message.get("value")))
        if isinstance(message, Mapping)
        else (None, None)
    )
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        content = None if any(not isinstance(text, str) for text in texts) else "".join(map(str, texts))
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(f"expected messages with a role and a text, got {shown(message)}")  # noqa: TRY004 (as above)
    return _ROLES.get(role, role), content


def answer_of(value: Any) -> str | None:
    """The true answer in a column; several of a list are one answer, a list with commas between them.

    None if there is nothing. Raises `ValueError` for what is no answer: a number that is not finite, and a word that
    programs write for nothing.
    """
    if isinstance(value, list):
        return ", ".join(_each_of(value)) or None
    text = text_of(value)
    is_number = isinstance(value, float) and math.isfinite(value)
    if text is not None and not is_number and text.strip().lstrip("+-").casefold() in _NO_ANSWERS:
        raise ValueError(f"expected an answer, got {shown(value)}")
    return text


def _each_of(answers: Sequence[Any]) -> Iterator[str]:
    for answer in answers:
        if isinstance(answer, list) or (text := answer_of(answer)) is None:
            raise ValueError(f"expected answers, got {shown(answer)} among them")
        yield text


def shown(value: Any) -> str:
    """A value of a file for a message."""
    return repr(str(value)[:80])
