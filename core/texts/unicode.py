"""Well-formed Unicode: text that UTF-8, the databases and every file format can hold; and text for a terminal.

A lone surrogate is half a character, which UTF-8 cannot hold. JSON's escapes can spell one (`"\\ud83d"`), and so can a
path or an argument that is not UTF-8. It is replaced by U+FFFD, as a decoder replaces bytes that are not UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")  # matches those of well-formed pairs too


def well_formed(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def without_commands(text: str) -> str:
    """The text with a space in place of each character that a terminal may take for a command. Lines stay lines."""
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)


def to_json(value: Any) -> str:
    """The JSON of a value, with all texts made well-formed. Raises `TypeError` for what JSON cannot represent."""
    return well_formed(json.dumps(value, ensure_ascii=False))


def from_json(text: str | bytes) -> Any:
    """Parse JSON that comes from outside, with all texts made well-formed.

    Raises:
        json.JSONDecodeError: `text` is not JSON, or Python cannot hold it: it is nested deeper than about a thousand
            levels, or an integer has more than 4,300 digits.
        UnicodeDecodeError: `text` is bytes that are not UTF-8.
    """
    text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
    try:
        value = json.loads(text)
        return json.loads(to_json(value)) if _SURROGATE_ESCAPE.search(text) else value
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        raise json.JSONDecodeError(str(error), text, 0) from error
