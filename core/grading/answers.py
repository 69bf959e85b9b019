"""Reading the answer of a rollout, which is the content of its last `\\boxed{}`, and normalising its spelling.

All functions here read untrusted text. They evaluate nothing, and each step takes time linear in the text's length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from core.grading.points import is_curve
from core.grading.quantities import parse_number, split_unit

_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,18}(?:[./][0-9]{1,18})?")  # already normalised
_WORDS = re.compile(r"[A-Za-z]{2,}(?:[ '-][A-Za-z]+)*")
_MAX_PASSES = 5  # one rewrite may make another possible; what is nested deeper than this is left as it is
_CACHED_CHARS = 200  # longer answers are not cached, to save memory

# Unicode characters that models write -> LaTeX: dashes, full-width characters, spaces, mathematical signs.
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−–—﹣－", "-"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
        **dict.fromkeys(map(chr, range(32)), " "),
        **{chr(0xFF10 + i): str(i) for i in range(10)},
        "×": r"\cdot ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "÷": "/",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "±": r"\pm ",
        "√": r"\sqrt ",
        "²": "^2",
        "³": "^3",
        "∈": r"\in ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∅": r"\emptyset ",
        "…": "...",
        "°": r"^\circ ",
        "％": "%",
        "（": "(",
        "）": ")",
        "，": ",",
        "~": " ",
    }
)
_UNIT_LETTERS = {"m": "meters", "s": "seconds", "g": "grams", "h": "hours", "L": "liters", "l": "liters"}
_WRAPPERS = r"\\(?:text|textbf|textit|textrm|textup|mathrm|mathbf|mathit|boldsymbol|bm|mbox|hbox)\s*"
_FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|gcd|max|min"
_ATOM = r"([0-9A-Za-z]|\\pi(?![A-Za-z]))"

_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\\\ ?\[[0-9.]{1,9} ?(?:pt|em|ex|mm|cm)\]", r"\\\\"),  # the height of a matrix's row
        (r"\\?\$|(?<!\\)\\[()\[\]!]|\\\\$", ""),
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
        (r"(?<=[0-9])(?:\{,\}|\\,)(?=[0-9]{3}(?![0-9]))", ","),
        (r"\{,\}", ","),
        (r"(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z]))", " "),
        (rf"(?<=[0-9}}]){_WRAPPERS}\{{\s*([msghLl])\.?\s*\}}", lambda match: " " + _UNIT_LETTERS[match[1]]),
        (_WRAPPERS + r"\{([^{}]*)\}", r" \1 "),
        (rf"^ ?{_WRAPPERS}(?=\{{)", ""),  # with braces inside; its own are removed later
        (r"\\%|(?<=[0-9}]) *per ?cent(?![a-z])", "%"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\(?:text)?degree(?![A-Za-z])", r"^\\circ "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\frac\s*" + _ATOM, r"\\frac{\1}"),
        (r"(\\frac\{[^{}]*\})\s*" + _ATOM, r"\1{\2}"),
        (r"\\sqrt\s*([0-9]+|[A-Za-z])", r"\\sqrt{\1}"),
        (r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<![\\A-Za-z])(pi|infty)(?![A-Za-z])|\binfinity\b", lambda match: rf"\{match[1] or 'infty'} "),
        (r"\\(?:times|ast)(?![A-Za-z])", r"\\cdot "),
        (rf"(?<![\\A-Za-z])({_FUNCTIONS})(?=[ (^_{{0-9\\])", r"\\\1"),
        (r"\*\*", "^"),
        (r"\*", r"\\cdot "),
        (r"\^\s*(-?[0-9]+|[A-Za-z])", r"^{\1}"),
        (r"_\s*([0-9]+|[A-Za-z])", r"_{\1}"),
        (r"=(?: ?=)+", "="),
        (r"<=|\\leq(?:slant)?(?![A-Za-z])", r"\\le "),
        (r">=|\\geq(?:slant)?(?![A-Za-z])", r"\\ge "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\\{ *\\\}|\\varnothing(?![A-Za-z])", r"\\emptyset "),
    )
]
_LISTING = re.compile(r",? (?:and|or) ")
_PROSE = re.compile(r"(?:the )?(?:final )?answer(?: is)?[ :=]+(?=.)", re.IGNORECASE)
_GOES_ON = re.compile(r"[0-9,] ?\.\.\.$")  # `0.333...` is not 0.333
_SPACES = re.compile(r" (?=[^0-9A-Za-z])|(?<=[^0-9A-Za-z]) |(?<=[0-9]) (?=[A-Za-z])")
_AFTER_COMMAND = re.compile(r"(\\[A-Za-z]+) (?![A-Za-z])")


def extract_boxed(text: str) -> str | None:
    """The content of the last `\\boxed{…}` with balanced braces, stripped; None if there is none or it is blank.

    Escaped braces (`\\{`) are text, not grouping, as in LaTeX. The text is read once, however many boxes stay open. A
    curve is a true answer only (`core.grading.points`): as a reply's answer it would equal any point of it, so it is
    none.
    """
    opened: list[tuple[int, bool]] = []  # per open brace: where its content starts, and whether it opens a box
    last: tuple[int, int] | None = None
    for brace in _BRACES.finditer(text):
        if brace[0][-1] == "{" and brace[0] != r"\{":
            opened.append((brace.end(), len(brace[0]) > 1))
        elif brace[0] == "}" and opened:
            start, boxed = opened.pop()
            if boxed and (last is None or start > last[0]):
                last = (start, brace.start())
    content = text[slice(*last)].strip() if last else ""
    return None if not content or ("=" in content and is_curve(normalise(content))) else content


def normalise(answer: str) -> str:
    """Remove differences of typography: spaces, `\\text`, `\\left`, `$`, `\\dfrac`, unicode signs, a final period.

    The result is still LaTeX. Words become lower case, and `and` or `or` between values becomes a comma. Nothing that
    could change a value is dropped: percent signs, units and brackets around lists stay.
    """
    if _PLAIN_NUMBER.fullmatch(answer):
        return answer
    return _normalise_cached(answer) if len(answer) <= _CACHED_CHARS else _normalise(answer)


def number_of(answer: str) -> Fraction | None:
    """The exact value of an answer that is a plain number, else None. `quantities.parse_number` lists the forms."""
    return parse_number(normalise(answer))


def answer_key(answer: str) -> str:
    """A key that is cheap to compute: the exact number (`1/2`, `25`) or else the normalised text, with its unit.

    A blank answer has the key "". Answers with equal keys are equal. Answers with different keys may be equal too,
    which only a `Grader` can tell.
    """
    if _PLAIN_INTEGER.fullmatch(answer):
        return answer
    body, unit = split_unit(normalise(answer))
    value = parse_number(body)
    return (body if value is None else str(value)) + (f" {unit}" if unit else "")


def is_words(text: str) -> bool:
    """Whether a normalised text is a word or a phrase, to be compared as text. Two letters, except `no`, are not: they
    may be a product."""
    return _WORDS.fullmatch(text) is not None and (len(text) > 2 or text in {"no"})


def _normalise(answer: str) -> str:
    text = answer
    for _ in range(_MAX_PASSES):
        before, text = text, _rewrite_once(text)
        if text == before:
            break
    return text


_normalise_cached = lru_cache(maxsize=65_536)(_normalise)


def _rewrite_once(text: str) -> str:
    text = text.translate(_CHARACTERS)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = " ".join(text.split()).lstrip(",;: ")
    text = text if _GOES_ON.search(text) else text.rstrip(".,;: ")
    text = _PROSE.sub("", text, count=1) if text[:12].lower().startswith(("the ", "final ", "answer")) else text
    if _WORDS.fullmatch(text):
        return text.casefold() if len(text) > 2 or text.casefold() == "no" else text
    text = _LISTING.sub(",", text)
    text = _AFTER_COMMAND.sub(r"\1", _SPACES.sub("", text))
    return _strip_grouping(_merge_signs(text))


def _merge_signs(text: str) -> str:
    """Replace a run of leading signs by one `-` or none."""
    body = text.lstrip("+-")
    return "-" + body if text[: len(text) - len(body)].count("-") % 2 else body


def _strip_grouping(text: str) -> str:
    """Remove the braces around the whole text, and the parentheses unless a comma makes it a tuple or an interval."""
    if text[:1] not in ("(", "{"):
        return text
    closing_of = {}
    opened: dict[str, list[int]] = {")": [], "}": []}  # apart, because `(3,4]` leaves its parenthesis open
    for i, char in enumerate(text):
        if char in "({" and text[i - 1 : i] != "\\":
            opened[")" if char == "(" else "}"].append(i)
        elif char in opened and opened[char] and text[i - 1] != "\\":
            closing_of[opened[char].pop()] = i
    first, last, tuple_like = 0, len(text) - 1, "," in text
    while closing_of.get(first) == last and (text[first], text[last]) in (("{", "}"), ("(", ")")):
        if text[first] == "(" and tuple_like:
            break
        first, last = first + 1, last - 1
    return text[first : last + 1]
