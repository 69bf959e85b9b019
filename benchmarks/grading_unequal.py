"""Wrong answers near a true one, and pairs of true answers to different questions, for the benchmark `grading`.

That the two differ follows from the text alone. If a rule leaves an answer as it is, it does not apply to it. Nothing
here uses a grader.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from fractions import Fraction

from benchmarks.grading_equal import Rule, everywhere, sum_of, terms_of, whole

PAIRS, SEED = 500, 20260101  # so many pairs of each kind are drawn from a benchmark

_INTEGER, _DECIMAL = r"(-?[0-9]+)", r"(-?[0-9]*\.[0-9]+)"
_FRACTION = r"(-?)\\d?frac\{([1-9][0-9]*)\}\{([2-9]|[1-9][0-9]+)\}"  # not 0, and not over 1
_COEFFICIENT = r"(-?(?:[1-9][0-9]*)?)"
_ROOT, _PI = rf"{_COEFFICIENT} ?\\sqrt\{{?([1-9][0-9]*)\}}?", rf"{_COEFFICIENT} ?\\pi"
_POSITIVE = r"(?:[0-9.]*[1-9][0-9.]*|\\d?frac\{[1-9][0-9]*\}\{[1-9][0-9]*\}|[0-9]* ?\\(?:sqrt\{?[0-9]+\}?|pi))"
_COMPLEX = r"(-?[0-9]+) ?([+-]) ?((?:[1-9][0-9]*)?)i"
_LIST = r"((?:\\left)?[(\[] ?|\\\{|)([^()\[\]=]*,[^()\[\]=]*?)( ?(?:\\right)?[)\]]|\\\}|)"
_ENDS = r"([(\[])([^()\[\],]+,[^()\[\],]+)([)\]])"
_THOUSANDS = r"[0-9],(?:\\!)? ?[0-9]{3}(?![0-9])"
_OTHER_UNITS = {"cm": "km", "inches": "miles", "cents": "dollars", "degrees": "radians"}
_OTHER_BRACKET = {"(": "[", "[": "(", ")": "]", "]": ")"}


def _coefficient(text: str) -> int:
    return int(text) if text.strip("-") else int(f"{text}1")


def _value(answer: str) -> float | None:
    """The value of a fraction, of `k\\sqrt{m}` or of `k\\pi`; None for anything else."""
    if match := re.fullmatch(_FRACTION, answer):
        return int(match[1] + match[2]) / int(match[3])
    if match := re.fullmatch(_ROOT, answer):
        return _coefficient(match[1]) * math.sqrt(int(match[2]))
    match = re.fullmatch(_PI, answer)
    return match and _coefficient(match[1]) * math.pi


def _rounded(places: int) -> Rule:
    def rule(answer: str) -> str:
        value = _value(answer)
        rounded = "" if value is None else f"{value:.{places}f}"
        return answer if value is None or float(rounded) == value else rounded

    return rule


def _next_decimal(match: re.Match[str]) -> str:
    return str(Decimal(match[0]) + Decimal(1).scaleb(-len(match[0].partition(".")[2])))


def _last_sign_flipped(answer: str) -> str:
    left, equals, right = answer.rpartition("=")  # of the right-hand side, if it is an equation
    terms = terms_of(right)
    return answer if not terms else left + equals + sum_of([*terms[:-1], "+-"[terms[-1][0] == "+"] + terms[-1][1:]])


def _last_term_dropped(answer: str) -> str:
    terms = terms_of(answer)
    return sum_of(terms[:-1]) if terms else answer


def _members(answer: str) -> tuple[str, list[str], str] | None:
    """The opening bracket, the members and the closing bracket of a finite interval, a tuple, a set or a bare list."""
    match = re.fullmatch(_LIST, answer)
    if match is None or "infty" in answer or re.search(_THOUSANDS, answer):
        return None
    return match[1], match[2].split(","), match[3]


def _member_dropped(answer: str) -> str:
    """Without the last member. A pair in brackets stays as it is: `(3)` would be no list."""
    opening, members, closing = _members(answer) or ("", [], "")
    few = len(members) < (3 if "(" in opening or "[" in opening else 2)
    return answer if few else opening + ",".join(members[:-1]) + closing


def _member_changed(answer: str) -> str:
    opening, members, closing = _members(answer) or ("", [], "")
    return f"{opening}{','.join(members)} + 1{closing}" if members else answer


def _members_reversed(answer: str) -> str:
    opening, members, closing = _members(answer) or ("", [], "")
    return opening + ",".join(members[::-1]) + closing if "(" in opening and ")" in closing else answer


def _bracket_changed(end: int) -> Rule:
    """A rule that changes the left (0) or the right (1) bracket of the first interval, if the end is finite."""

    def change(match: re.Match[str]) -> str:
        brackets, ends = [match[1], match[3]], match[2].split(",")
        if "infty" not in ends[end]:
            brackets[end] = _OTHER_BRACKET[brackets[end]]
        return brackets[0] + match[2] + brackets[1]

    return lambda answer: re.sub(_ENDS.replace(r"([)", r"((?:\\right)?[)"), change, answer, count=1)


NEAR: dict[str, Rule] = {
    "`-5` for `5`": whole(_POSITIVE, r"-\g<0>"),
    "`5` for `-5`": whole(f"-({_POSITIVE})", r"\1"),
    "`6` for `5`": whole(_INTEGER, lambda match: str(int(match[0]) + 1)),
    "`50` for `5`": whole(r"-?[1-9][0-9]*", r"\g<0>0"),
    "`132` for `123`": whole(r"([0-9]+)([0-9])(?!\2)([0-9])", r"\1\3\2"),
    "`5.01` for `5`": whole(_INTEGER, r"\g<0>.01"),
    "`0.26` for `0.25`": whole(_DECIMAL, _next_decimal),
    "`0.2` for `0.25`": whole(r"([0-9]*\.[0-9]*)[1-9]", r"\g<1>0"),
    r"`\frac{2}{3}` for `\frac{1}{3}`": whole(_FRACTION, lambda m: rf"{m[1]}\frac{{{int(m[2]) + 1}}}{{{m[3]}}}"),
    r"`\frac{1}{4}` for `\frac{1}{3}`": whole(_FRACTION, lambda m: rf"{m[1]}\frac{{{m[2]}}}{{{int(m[3]) + 1}}}"),
    r"`\frac{3}{2}` for `\frac{2}{3}`": whole(_FRACTION, r"\1\\frac{\3}{\2}"),
    r"`1` for `\frac{1}{2}`": whole(_FRACTION, r"\1\2"),
    r"`\frac{1}{2}` for `1\frac{1}{2}`": whole(r"[0-9]+ ?(\\frac\{[0-9]+\}\{[0-9]+\})", r"\1"),
    r"`0.333` for `\frac{1}{3}`, `1.414` for `\sqrt{2}`": _rounded(3),
    r"`0.33333333` for `\frac{1}{3}`": _rounded(8),
    r"`4\sqrt{2}` for `3\sqrt{2}`": whole(r"([0-9]+)( ?\\(?:sqrt|pi).*)", lambda m: f"{int(m[1]) + 1}{m[2]}"),
    r"`\sqrt{3}` for `\sqrt{2}`": everywhere(r"\\sqrt\{?([0-9]+)\}?", lambda m: rf"\sqrt{{{int(m[1]) + 1}}}"),
    r"`3` for `3\pi`": whole(r"([0-9]+) ?\\pi", r"\1"),
    r"`6^\circ` for `5^\circ`": whole(r"([0-9]+)\^\\circ", lambda m: rf"{int(m[1]) + 1}^\circ"),
    "`5_9` for `5_8`": whole(r"([0-9]+)_([0-9])", lambda m: f"{m[1]}_{{{int(m[2]) + 1}}}"),
    r"`5\text{ km}` for `5\text{ cm}`": lambda answer: re.sub(
        rf"(?<=\{{ )({'|'.join(_OTHER_UNITS)})(?=\}})", lambda m: _OTHER_UNITS[m[0]], answer
    ),
    "`a - b` for `a + b`": _last_sign_flipped,
    "`a` for `a + b`": _last_term_dropped,
    "`2(a + b)` for `a + b`": lambda answer: f"2({answer})" if terms_of(answer) else answer,
    "`y = 2x + 1` for `y = 2x`": whole(r"[^=]+=[^=]+", r"\g<0> + 1"),
    r"`a + b` for `a \pm b`": everywhere(r"\\pm", "+"),
    "`x^3` for `x^2`": everywhere(r"(?<=[a-zA-Z])\^([0-9])", lambda m: f"^{int(m[1]) + 1}"),
    "`(1, 2)` for `(1, 2, 3)`": _member_dropped,
    "`(1, 2 + 1)` for `(1, 2)`": _member_changed,
    "`(2, 1)` for `(1, 2)`": _members_reversed,
    "`[1, 2)` for `(1, 2)`": _bracket_changed(0),
    "`(1, 2]` for `(1, 2)`": _bracket_changed(1),
    r"`A` for `A \cup B`": whole(r"(.*[^ ]) ?\\cup.*", r"\1"),
    "last entry of a matrix + 1": everywhere(r" ?\\end\{pmatrix\}", r" + 1 \\end{pmatrix}"),
    "a matrix without its last row": everywhere(r"\\\\((?!\\\\).)*(?=\\end\{pmatrix\})", ""),
    r"`\text{(D)}` for `\text{(C)}`": whole(r"(\\text\{\()([A-D])\)\}", lambda m: f"{m[1]}{chr(ord(m[2]) + 1)})}}"),
}

Kind = tuple[str, Hashable]  # a name, and a value; without a value, only another kind is known to differ


def _root(match: re.Match[str]) -> Kind | None:
    coefficient, radicand = _coefficient(match[1]), int(match[2])
    if math.isqrt(radicand) ** 2 == radicand:
        return None
    return "roots", (coefficient > 0, coefficient**2 * radicand)


_KINDS: tuple[tuple[str, Callable[[re.Match[str]], Kind | None]], ...] = (
    (f"{_INTEGER}|{_DECIMAL}", lambda match: ("numbers", Fraction(match[0]))),
    (_FRACTION, lambda match: ("numbers", Fraction(int(match[1] + match[2]), int(match[3])))),
    (r"([0-9]+)\^\\circ", lambda match: ("angles", Fraction(match[1]))),
    (_ROOT, _root),
    (_PI, lambda match: ("multiples of pi", _coefficient(match[1]))),
    (_COMPLEX, lambda match: ("complex numbers", (int(match[1]), _coefficient(match[2].strip("+") + match[3])))),
    (r"\\text\{([A-Za-z]{2,})\}", lambda match: ("words", match[1].casefold())),
    (r"\\begin\{pmatrix\}.*", lambda _: ("matrices", None)),
    (r".*infty.*|.*\([^()]*\].*|.*\[[^\[\]]*\).*", lambda _: ("intervals", None)),
    (r"(?!.*[A-Za-z]{2})[0-9+^ -]*[a-hj-zA-Z][0-9a-zA-Z+^ -]*", lambda _: ("polynomials", None)),
)


def kind_of(answer: str) -> Kind | None:
    """What an answer is, and its value where that can be told from the text; None if it may be of several kinds."""
    return next((kind(match) for pattern, kind in _KINDS if (match := re.fullmatch(pattern, answer))), None)


def _differ(a: Kind, b: Kind) -> bool:
    """Whether two answers certainly differ: in kind, or in value. 90 degrees may be written `90`, or in radians."""
    kinds = {a[0], b[0]}
    if len(kinds) == 1 or kinds == {"numbers", "angles"}:
        return None not in (a[1], b[1]) and a[1] != b[1]
    return kinds != {"multiples of pi", "angles"}


def other_answers(answers: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Pairs of answers that certainly differ, by what they are; of each kind a seeded sample of `PAIRS` at most."""
    pairs = defaultdict[str, list[tuple[str, str]]](list)
    known = [(answer, kind) for answer in answers if (kind := kind_of(answer)) is not None]
    for (answer, kind), (other, other_kind) in itertools.combinations(known, 2):
        if _differ(kind, other_kind):
            pairs[kind[0] if kind[0] == other_kind[0] else "different kinds"].append((answer, other))
    rng = random.Random(SEED)
    return {
        f"other answers: {name}": rng.sample(known, min(PAIRS, len(known))) for name, known in sorted(pairs.items())
    }
