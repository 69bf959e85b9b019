r"""The answer of a rollout: the content of its last `\boxed{}`."""

from __future__ import annotations

import re

_BRACES = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*(?:\{|(?=[^\s{}\\])|(?=\\[A-Za-z]))|\\.|[{}]", re.DOTALL)
_TOKEN = re.compile(r"\\[A-Za-z]+(?:\{[^{}]*\}){0,2}|-?[0-9]+(?:\.[0-9]+)?|.")  # as TeX, but for the whole number
_BETWEEN = re.compile(r"\s*[$.]*\s*(,|and|,\s*and)\s*[$]*\s*(?:[A-Za-z]\s*=\s*)?\$?", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"(?:[?._\s-]|…|\\(?:l|c)?dots|\\square|\\(?:text|quad|,)|[{}])*")
_LONGEST_BETWEEN = 40  # characters between two boxes that make one answer
_MOST_BOXES = 20  # in one answer


def extract_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{…}` with balanced braces, stripped; None if there is none.

    Escaped braces (`\{`) are text, not grouping, as in LaTeX. The text is read once, however many boxes stay open. A
    box with nothing in it, or only with a placeholder such as `?`, is no answer. `\boxed{3} and \boxed{5}` is the
    answer `3 and 5`.
    """
    boxes = _boxes(text)
    while boxes and is_placeholder(text[slice(*boxes[-1][1])]):
        boxes.pop()
    if not boxes:
        return None
    (start, _), (opening, closing) = boxes[-1]
    content = text[opening:closing].strip()
    for (earlier_start, earlier_end), inside in reversed(boxes[-_MOST_BOXES:-1]):
        between = text[earlier_end:start] if start - earlier_end <= _LONGEST_BETWEEN else ""
        joined = _BETWEEN.fullmatch(between) if earlier_end <= start else None
        if joined is None:
            break
        word = " ".join(joined[1].split())
        content = f"{text[slice(*inside)].strip()}{'' if word.startswith(',') else ' '}{word} {content}"
        start = earlier_start
    return content


def is_placeholder(text: str) -> bool:
    """Whether a text is blank, or stands only for an answer that is to come, such as `?` and `...`."""
    return _PLACEHOLDER.fullmatch(text) is not None


def _boxes(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Of each box that closes and has none inside: where it starts and ends, and where its content does; by the start
    of the content."""
    opened: list[tuple[int, int, bool]] = []  # per open brace: the start, that of its content, and whether it is a box
    boxes: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for brace in _BRACES.finditer(text):
        if brace[0][-1] == "{" and brace[0] != r"\{":
            opened.append((brace.start(), brace.end(), len(brace[0]) > 1))
        elif brace[0] == "}" and opened:
            start, content, boxed = opened.pop()
            if boxed:
                boxes.append(((start, brace.end()), (content, brace.start())))
        elif len(brace[0]) > 2 and (token := _TOKEN.match(text, brace.end())):
            boxes.append(((brace.start(), token.end()), (brace.end(), token.end())))
    return sorted(boxes, key=lambda box: box[1])
