"""What each layer of reading an answer makes of a text."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from core.grading.answers import normalise
from core.grading.characters import plain
from core.grading.expressions import for_library
from core.grading.lists import as_list, as_matrix
from core.grading.notation import mathematical
from core.grading.number_words import number_in_words
from core.grading.prose import without_prose
from core.grading.quantities import read_quantity
from core.grading.relations import statement
from core.grading.typography import typeset
from core.grading.units import read_unit
from core.grading.words import certainly_differ

# What each layer makes of a text; None: the layer leaves it to others.
LAYERS: dict[Callable[[str], str | None], dict[str, str | None]] = {
    plain: {
        "3½": r"3\frac{1}{2}",
        "x⁻¹": "x^{-1}",
        "0.16̅": r"0.1\overline{6}",
        "５．５": "5.5",
        "٣": "3",
        "5\u200f": "5",
        "10\u2009000": "10000",
        "&lt;5": "<5",
        "\x0crac{1}{2}": r"\frac{1}{2}",
        "1⁄2": r"\frac{1}{2}",
        "¹⁄₂": r"\frac{1}{2}",
        "³√8": r"\sqrt[3] 8",
        "①③": "1, 3",
        "5㎡": r"5\text{m}^{2}",
    },
    typeset: {
        r"\dfrac12": r"\frac{1}{2}",
        r"\textcolor{red}{5}": "5",
        r"\mathbf{1}2": "12",
        r"\mathbb{R}": r"\mathbb{R}",
        r"5\text{ kg/m}^3": r"5 \text{kg}/\text{m}^3",
        r"\textbf{$(3,\frac12)$}": r"(3,\frac{1}{2})",
        r"2{3}": "2(3)",
        r"x^\mathbf{2}": "x^{2}",
        r"5\mathrm{~m}/\mathrm{s}": r"5 \text{m}/\text{s}",
        r"\\frac{1}{2}\\pi": r"\frac{1}{2}\pi",
        r"\qty{5}{\kilo\metre\per\second}": r"5 \text{kilometre}/ \text{second}",
        r"\begin{aligned}x&=5\end{aligned}": "x=5",
        r"\mathbb R": r"\mathbb{R}",
        "**Answer:** 5": "Answer: 5",
        "#### 5": "5",
        "**5**": "5",
        r"\begin{bmatrix}1\\[4pt]2\end{bmatrix}": r"\begin{pmatrix}1\\2\end{pmatrix}",
    },
    mathematical: {
        "sqrt(2)": r"\sqrt{2}",
        "2**3**2": "2^{3^{2}}",
        "2 x 3": r"2\cdot 3",
        "3x": "3x",
        r"0.\dot{1}4285\dot{7}": r"0.\overline{142857}",
        "[1,2[": "[1,2)",
        "50 percent": "50%",
        r"1\over 2": r"\frac{1}{2}",
        r"C_{6}^{3}": r"\binom{6}{3}",
        "0b1011": "1011_{2}",
        "1011 base 2": "1011_{2}",
        "5'6''": r"5\text{ft}6\text{in}",
        "2 and a half": r"2\frac{1}{2}",
    },
    without_prose: {
        "The answer is 5.": "5",
        "1, 200": "1, 200",
        "1,200": "1200",
        "(1,200)": "(1, 200)",
        "3 und 4": "3, 4",
        r"x<2 or x>3": r"x<2\text{or}x>3",
        "5 or so apples": "5or so apples",
        "5 cm": r"5\text{cm}",
        "5m": "5m",
        "HT": r"\text{HT}",
        "Yes": "yes",
        "Two": "2",
        r"\text{fifteen}": "15",
        "two points": r"2\text{points}",
        "A and C": "A, C",
        "Ann and Bob": "ann and bob",
        "The sum of all roots is 42": "42",
        "The least value is 42": "The least value is 42",
        "5 dan 7": "5dan 7",
        "3 million": r"3\text{million}",
    },
    number_in_words: {
        "twenty-five": "25",
        "one hundred and five": "105",
        "two million three hundred thousand": "2300000",
        "minus one hundred twenty three": "-123",
        "three-fourths": "3/4",
        "half": "1/2",
        "a third": "1/3",
        "two and a half": r"2\frac{1}{2}",
        "fifty percent": "50%",
        "twenty-fifth": None,  # an ordinal
        "third": None,
        "twenty twelve": None,
        "five five": None,
        "hundred": None,
        "a": None,
        "one and": None,
        "apples": None,
    },
    for_library: {
        "3(4)": r"3\cdot (4)",
        r"3\frac{1}{2}": r"(3+\frac{1}{2})",
        "f'(x)": "f_{prime1}(x)",
        "A^{T}": "A_{tp}",
        "0.5x": r"\frac{5}{10}x",
        r"\foo": None,
        r"2\binom{5}{2}3": r"2\cdot \binom{5}{2}\cdot 3",
        r"\frac{dy}{dx}": None,
        "7!!": None,
        r"\int x dx": None,
        "1.234.567": None,
        "1+...+9": None,
        r"\text{ab}": None,
    },
}


@pytest.mark.parametrize(
    ("layer", "text", "read"),
    [(layer, text, read) for layer, cases in LAYERS.items() for text, read in cases.items()],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_layer_reads_a_text(layer: Callable[[str], str | None], text: str, read: str | None) -> None:
    assert layer(text) == read


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("cm", "centimeters"),
        ("sq. ft", "ft^{2}"),
        ("miles per hour", "mph"),
        ("kPa", "kilopascals"),
        ("m/s", "m s^{-1}"),
    ],
)
def test_units_of_one_size(a: str, b: str) -> None:
    one, other = read_unit(a), read_unit(b)
    assert one[:2] == other[:2]


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("5 ft 6 in", 66, "in"),
        (r"5\text{ feet }6\text{ inches}", 66, "in"),
        ("2 hours 30 minutes", 150, "min"),
        ("2 h 30 min", 150, "min"),
        ("1 week 2 days 3.5 hours", Fraction(219.5), "h"),
        ("3 lb 4 oz", None, None),  # ounces may be fluid ones
        ("6 in 5 ft", None, None),  # the larger one comes first
        ("5 ft 6 kg", None, None),
        ("5 ft 6", None, None),
        ("5 x 6 cm", None, None),
    ],
)
def test_several_units_are_one_quantity(text: str, number: Fraction | None, unit: str | None) -> None:
    quantity = read_quantity(normalise(text))
    assert quantity.number == number
    expected = unit and read_unit(unit)
    assert (quantity.unit and quantity.unit[:2] if number is not None else None) == (expected and expected[:2])


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [
        ("east", "west", True),
        ("apples", "5", True),
        ("no solution", "no solutions", False),
        ("no real solutions", "no solution", False),
        ("dne", "does not exist", False),
        ("无解", "no solution", False),
        ("是", "否", True),
        ("fünf", "5", False),
        ("once", "5", False),
        ("yes", "it is", False),
    ],
)
def test_words_that_certainly_differ(a: str, b: str, differ: bool) -> None:
    assert certainly_differ(a, b) is differ
    assert certainly_differ(b, a) is differ


@pytest.mark.parametrize("text", ["times", "or more", "hundred", "x", "", "sin", "thirds"])
def test_what_is_no_unit(text: str) -> None:
    assert read_unit(text) is None


def test_lists_and_relations() -> None:
    assert as_list(r"1\pm2") == ("", ("1+2", "1-2"))
    assert as_list("[1, 2)") == ("[)", ("1", "2"))
    assert as_list("f(1)") is None
    assert as_matrix("[[1, 2], [3, 4]]") == (("1", "2"), ("3", "4"))
    assert statement("m+n=33+7=40") == ("m+n=40", None)
    assert statement(r"\{x\mid x>2\}") == ("x>2", "x")
