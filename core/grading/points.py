"""A true answer that infinitely many answers satisfy: any point of the curve of a polynomial (Poly-EPO 6.2).

It is written `\\in \\{(x, y) \\mid y = x^2 + 3x + 7\\}`, which says "an element of this set". A point equals it if it
is on the curve.
"""

from __future__ import annotations

import re
from fractions import Fraction

from core.grading.quantities import parse_number
from core.types import EqualityVerdict

_CURVE = re.compile(r"\\in\\\{\(x, y\)(?:\\mid|\||:) ?y=(.+)\\\}")
_TERM = re.compile(r"([+-])([^x+-]{0,40})(x)?(?:\^\{([1-9])\})?")  # sign, coefficient, variable, exponent
_COORDINATES = r"{open}(?:x=)?([^,=()]{{1,40}}), (?:y=)?([^,=()]{{1,40}}){close}"
_POINT = re.compile(rf"(?:\(x, y\)=)?{_COORDINATES.format(open='[(]', close='[)]')}")
_BARE_POINT = re.compile(_COORDINATES.format(open="", close=""))


def is_curve(text: str) -> bool:
    """Whether a normalised answer stands for the points of a polynomial's curve."""
    return text.startswith(r"\in\{(x, y)") and _coefficients(text) is not None


def compare(a: str, b: str) -> EqualityVerdict:
    """Whether the point is on the curve; `a` and `b` are normalised, and at least one of them is a curve.

    A point is `(1,11)`, `1,11`, `(x=1,y=11)` or `(x,y)=(1,11)`, with rational numbers. Deviation: a coordinate that is
    no number literal, such as `\\sqrt{2}`, is `unknown`, although the paper allows all real numbers; a formula with the
    variable in it, as in `(x,x^2)`, must not be taken for a point. What is no pair is unequal, and so is another curve,
    even the same one: a copy of the relation names no point.
    """
    curve, other = (a, b) if is_curve(a) else (b, a)
    written = _POINT.fullmatch(other) or _BARE_POINT.fullmatch(other)
    if written is None:
        return "unequal"
    x, y = (parse_number(coordinate) for coordinate in written.groups())
    if x is None or y is None:
        return "unknown"
    coefficients = _coefficients(curve) or {}
    return "equal" if sum(factor * x**exponent for exponent, factor in coefficients.items()) == y else "unequal"


def _coefficients(text: str) -> dict[int, Fraction] | None:
    """Exponent -> coefficient of the polynomial of a curve; None if the text is no curve."""
    if (match := _CURVE.fullmatch(text)) is None:
        return None
    polynomial = match[1] if match[1].startswith("-") else f"+{match[1]}"
    coefficients: dict[int, Fraction] = {}
    end = 0
    for term in _TERM.finditer(polynomial):
        sign, factor, variable, exponent = term.groups()
        value = parse_number(factor) if factor else Fraction(1) if variable else None
        if term.start() != end or value is None or (exponent and not variable):
            return None
        power = int(exponent or 1) if variable else 0
        coefficients[power] = coefficients.get(power, Fraction(0)) + (value if sign == "+" else -value)
        end = term.end()
    return coefficients if end == len(polynomial) else None
