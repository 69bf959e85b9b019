r"""The fifth layer of reading an answer: tuples, intervals, sets, bare lists, matrices, and `\pm`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from core.grading.answers import normalise

_TOKEN = re.compile(r"\\.|[()\[\]{},]", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{(p?matrix)\}((?:(?!\\begin|\\end).)*)\\end\{\1\}", re.DOTALL)
_SIGN = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_MOST_CELLS = 100  # of a matrix that is compared cell by cell


class List(NamedTuple):
    r"""A list as written: the brackets of `(1, 2]` are "(]", those of `\{1, 2\}` "{}", those of a bare `1, 2` ""."""

    brackets: str
    members: tuple[str, ...]


@lru_cache(maxsize=16_384)
def as_list(text: str) -> List | None:
    r"""The normalised members of a tuple, interval, set or bare list; None if the text is a single value.

    `a\pm b` stands for two values: for two members of a set or a bare list, else for a bare list of two. A single
    member in brackets is a list only in `\{…\}`.
    """
    body, brackets = text, ""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        body, brackets = text[2:-2], "{}"
    elif text[:1] in tuple("([") and text[-1:] in tuple(")]"):
        body, brackets = text[1:-1], text[0] + text[-1]
    members = split(body)
    if members is None or (len(members) == 1 and brackets != "{}"):
        members, brackets = split(text), ""
        if members is None or (len(members) == 1 and _both_signs(text) == [text]):
            return None
    if brackets in ("", "{}"):
        members = [value for member in members for value in _both_signs(member)]
    elif len(both := _both_signs(text)) == 2:
        members, brackets = both, ""
    return List(brackets, tuple(normalise(member) for member in members))


def _both_signs(text: str) -> list[str]:
    r"""The two values of `a\pm b`; the text itself if it has no such sign or several.

    With one `\pm` and one `\mp`, the upper signs belong together and so do the lower ones.
    """
    signs = _SIGN.findall(text)
    if signs not in (["pm"], ["mp"], ["pm", "mp"], ["mp", "pm"]):
        return [text]
    upper, lower = ({"pm": first, "mp": second} for first, second in ("+-", "-+"))
    return [_SIGN.sub(lambda sign: upper[sign[1]], text), _SIGN.sub(lambda sign: lower[sign[1]], text)]


def as_matrix(text: str) -> tuple[tuple[str, ...], ...] | None:
    r"""The rows of a matrix, with normalised cells: of `\begin{pmatrix}` or of lists in a list; None if it is none."""
    if match := _MATRIX.fullmatch(text):
        rows = [row.split("&") for row in re.split(r"\\\\", match[2]) if row.strip()]
    elif text.startswith("[[") and text.endswith("]]"):
        lists = [as_list(row.strip()) for row in split(text[1:-1]) or ()]
        rows = [list(row.members) if row and row.brackets == "[]" else [] for row in lists]
    else:
        return None
    if not rows or len({len(row) for row in rows}) > 1 or not rows[0] or len(rows) * len(rows[0]) > _MOST_CELLS:
        return None
    return tuple(tuple(normalise(cell.strip()) for cell in row) for row in rows)


def is_bare_matrix(text: str) -> bool:
    """Whether a matrix has no brackets: its cells may be a list below each other."""
    return text.startswith(r"\begin{matrix}")


def split(text: str) -> list[str] | None:
    r"""The parts between top-level commas; None if brackets do not match, as in `1, 2)\cup(3, 4`."""
    parts, start, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("(", "[", "{", r"\{"):
            depth += 1
        elif mark in (")", "]", "}", r"\}"):
            depth -= 1
            if depth < 0:
                return None
        elif mark == "," and depth == 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    return [*parts, text[start:].strip()] if depth == 0 else None
