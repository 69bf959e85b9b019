from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.grading.answers import answer_key, extract_boxed, normalise, number_of
from core.grading.words import is_words

# Pieces of what models write: LaTeX, digits, brackets, units and noise. Texts made of them have many constructs close
# together, so that the normalisation's rules interact.
PIECES = st.sampled_from(
    [
        *r"0123456789xyi+-*/^_=<>()[]{}.,;:!%$~\−×°",
        *(r"\frac", r"\dfrac", r"\sqrt", r"\text{", r"\mathrm{m}", r"\pi", r"\left(", r"\right)", r"\{", r"\}", r"\,"),
        *(r"\!", r"\%", r"\$", r"^\circ", r"\pm", r"\cdot", r"\times", r"\infty", r"\in", r"\frac{1}{2}", "1,234"),
        *("±", "√", "²", "∈", "∪", "...", r"\\[4pt]", r"\mid ", r"\leqslant "),
        *(" ", " and ", " or ", " square units", "answer is ", "cm", "sqrt(", "**", "<=", "Yes", "percent", "\u200b"),
    ]
)
WRITTEN = st.lists(PIECES, max_size=12).map("".join)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{25}.", "25"),
        (r"\boxed{1} then \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{x\right.}", r"\left\{x\right."),  # an escaped brace opens no group
        (r"\boxed {7}", "7"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{3} and \boxed{4", "3"),
        (r"} \boxed{3} }", "3"),
        (r"\boxed{}", None),
        (r"\boxed{5} \boxed{ }", "5"),  # an empty box holds no answer, and neither does a placeholder
        (r"\boxed{5} \boxed{?}", "5"),
        (r"\boxed{5} \boxed{\ldots}", "5"),
        (r"\boxed{?}", None),
        (r"\boxed 5", "5"),
        (r"\boxed 42.", "42"),
        (r"\boxed\pi", r"\pi"),
        (r"\boxed\frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxedness{5}", None),
        (r"\fbox{5}", "5"),
        (r"\framebox{5}", "5"),
        (r"x=\boxed{3} and y=\boxed{5}", "3 and 5"),
        (r"$\boxed{3}$ or $\boxed{5}$.", "5"),
        (r"\boxed{1}, \boxed{2}, and \boxed{3}", "1, 2, and 3"),
        (r"\boxed{3}. Check: and so on. \boxed{5}", "5"),
        (r"\boxed{1", None),
        ("25", None),
        ("", None),
        (r"\boxed{" * 30_000, None),
        (r"\boxed{" * 3 + "9" + "}", "9"),
    ],
)
def test_the_answer_is_the_content_of_the_last_box_that_closes(text: str, answer: str | None) -> None:
    assert extract_boxed(text) == answer


@given(st.text(max_size=60), st.text(alphabet=st.characters(exclude_characters="{}\\"), max_size=60))
def test_the_boxed_content_is_returned_stripped(before: str, content: str) -> None:
    prefix = before.replace("\\", "").replace("boxed", "")
    expected = content.strip() if content.strip("?._-… ").strip() else None
    assert extract_boxed(prefix + r"\boxed{" + content + "} after") == expected


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("25", "25"),
        ("025", "25"),
        ("-0", "0"),
        ("+5", "5"),
        ("--5", "5"),
        ("−5", "-5"),
        ("5.", "5"),
        (".5", "1/2"),
        ("0.50", "1/2"),
        ("1,234", "1234"),
        ("1,234,567.5", "2469135/2"),
        (r"1\,234", "1234"),
        ("1{,}234", "1234"),
        (r"1,\!234", "1234"),
        ("50%", "1/2"),
        (r"50\%", "1/2"),
        ("50 percent", "1/2"),
        (r"\frac{1}{2}", "1/2"),
        (r"-\dfrac12", "-1/2"),
        (r"\frac{-1}{2}", "-1/2"),
        (r"-\frac{-1}{-2}", "-1/2"),
        (r"\frac{1.5}{3}", "1/2"),
        ("6/4", "3/2"),
        (r"3\frac{1}{2}", "7/2"),
        ("3 1/2", "7/2"),
        (r"-3\frac{1}{2}", "-7/2"),
        ("1e5", "100000"),
        ("1.5E-2", "3/200"),
        (r"1.5 \times 10^{3}", "1500"),
        ("2^{10}", "1024"),
        ("10^{-3}", "1/1000"),
        ("2**3", "8"),
        (r"0.\overline{3}", "1/3"),
        (r"0.1\overline{6}", "1/6"),
        (r"$\text{(12)}$", "12"),
        ("1\u200b2", "12"),
        ("٣", "3"),
        ("The final answer is 12.", "12"),
        ("7" * 2000, "7" * 2000),
    ],
)
def test_a_number_has_its_exact_value(answer: str, value: str) -> None:
    assert number_of(answer) == Fraction(value)
    assert answer_key(answer) == str(Fraction(value))


NO_NUMBERS = [
    *(
        "",
        "x",
        "5x",
        "5 cm",
        "1 2",
        "1,23",
        "3,14",
        "1.2.3",
        "1_000",
        "0x10",
        r"\$5.00",
        "²",
        "%",
        "-",
        "nan",
        "Infinity",
        "10!",
    ),
    *(
        "1/0",
        r"\frac{0}{0}",
        "0^{0}",
        "0^{-1}",
        "9^{9^{9}}",
        "9^9^9",
        "2^{99999999}",
        "12345^{999}",
        "10^{-1000000000}",
    ),
    *("1e999999999", "1e1001", "2+3", r"\pi", "(1,2)", "9" * 2001, "1" + ",111" * 700),
]


@pytest.mark.parametrize("answer", NO_NUMBERS)
def test_an_answer_that_is_not_a_number_of_limited_size_has_no_value(answer: str) -> None:
    assert number_of(answer) is None


@given(
    st.integers(),
    st.sampled_from(["{}", "{:,}", "${}$", "{}.0", r"\text{{{}}}", " {} ", "({})", "{}e0", r"\frac{{{}}}{{1}}"]),
)
def test_spellings_of_an_integer_have_its_value(n: int, spelling: str) -> None:
    assert number_of(spelling.format(n)) == n


@given(st.fractions(), st.sampled_from(["{p}/{q}", r"\frac{{{p}}}{{{q}}}", r"\tfrac {{{p}}} {{{q}}}", "{p} / {q}"]))
def test_spellings_of_a_fraction_have_its_value(value: Fraction, spelling: str) -> None:
    text = spelling.format(p=value.numerator, q=value.denominator)
    assert number_of(text) == value
    assert number_of(text + "%") == value / 100


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.integers(-300, 300))
def test_scientific_notation_is_exact(mantissa: object, exponent: int) -> None:
    value = Fraction(str(mantissa)) * Fraction(10) ** exponent
    assert number_of(f"{mantissa}e{exponent}") == value
    assert number_of(rf"{mantissa}\times 10^{{{exponent}}}") == value


@pytest.mark.parametrize(
    "spellings",
    [
        (r"x^2+1", "x^{2} + 1", r"$x^2+1$", r"\left( x^2+1 \right)"),
        (r"2\sqrt{3}", r"2 \sqrt 3", "2sqrt(3)", r"2 \sqrt{3}."),
        ("(1, 2]", r"\left(1,2\right]", "(1,2]"),
        ("No solution", r"\text{No solution}", "no solution."),
        ("5 cm", r"5\text{ cm}", "5 centimeters", r"5\,\mathrm{cm}", "5.0cm"),
        (r"5\text{ m}", "5 meters"),
        ("5 square units", r"5 \text{ units}^2"),
        (r"90^\circ", "90 degrees", "90°", r"90^{\circ}"),
        ("x = 1 or x = 2", "x=1, x=2", r"x=1\text{ or }x=2"),
        ("1011_2", "1011_{2}"),
        (r"\{\}", r"\emptyset", r"\varnothing"),
        (r"\textbf{(A)}", "A"),
        (r"\sin(x)", "sin(x)"),
        ("x<=2", r"x \leq 2", "x≤2"),
        ("x=2", "x==2", "x = = = = = = = 2"),
    ],
)
def test_spellings_of_one_answer_share_a_key(spellings: tuple[str, ...]) -> None:
    assert len({answer_key(text) for text in spellings}) == 1


DIFFERENT = [
    *(("50%", "50"), ("5m", r"5\text{ m}"), ("5 cm", "5 m"), ("1011_2", "1011"), (r"\sin 30^\circ", r"\sin 30")),
    *(("(1,2)", "[1,2]"), ("1,2", "12"), ("12", "1 2"), ("x<2", r"x\le 2"), ("x_1", "x1"), ("abc", "cab")),
    *(("0.5", "5"), ("-5", "5"), (r"\$50", "50 cents"), ("1, 200", "1,200"), ("HT", "TH"), ("12:00", "1:00")),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_answers_with_different_values_have_different_keys(a: str, b: str) -> None:
    assert answer_key(a) != answer_key(b)


@settings(max_examples=300)
@given(WRITTEN)
@example("5 square units")
@example("1011_2")
@example("((((((5))))))")
@example(r"\$\frac")
@example(r"\text{USD}\frac{1}")
@example(r"\$\sqrt[3]")
def test_keys_and_normal_forms_are_idempotent(answer: str) -> None:
    assert answer_key(answer_key(answer)) == answer_key(answer)
    assert normalise(normalise(answer)) == normalise(answer)


@given(st.text(max_size=300))
def test_any_text_has_a_key(answer: str) -> None:
    assert isinstance(answer_key(answer), str)


@pytest.mark.parametrize("text", ["yes", "no solution", "abc", "no", "twenty-five", r"\text{HT}", "éva"])
def test_words_are_recognised_as_words(text: str) -> None:
    assert is_words(text)


@pytest.mark.parametrize("text", ["x", "ab", "2x", r"\pi", "", "5 cm", "x y"])
def test_variables_and_products_are_not_words(text: str) -> None:
    assert not is_words(text)
