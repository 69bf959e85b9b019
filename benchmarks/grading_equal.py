"""Rules that write an answer in another way with the same value, for the benchmark `grading`.

That a rewrite is equal follows from the text alone: from LaTeX (spaces, braces), from arithmetic, or from how answers
are commonly written (a unit is left out, `x =` is put in front). If a rule leaves an answer as it is, it does not apply
to it. Nothing here uses a grader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import gcd, isqrt

Rule = Callable[[str], str]

_TEXT = r"\\(?:text|mbox)\{"
_FRACTION = r"(-?)\\d?frac\{([0-9]+)\}\{([1-9][0-9]*)\}"
_SCALAR = r"-?(?:[0-9.]+|[0-9]*\s*\\(?:sqrt\{?[0-9]+\}?|pi)|\\d?frac\{[0-9]+\}\{[0-9]+\})"
_GROUP = r"\{((?:[^{}]|\{[^{}]*\})+)\}"
_PAIR = r"(-?[0-9]{1,2}),( ?-?[0-9]{1,2})"  # two numbers, and not one with a thousands separator
_UNICODE = {"-": "−", r"\pi": "π", r"\infty": "∞", r"\cup": "∪", r"\pm": "±", r"^\circ": "°"}


def whole(pattern: str, rewrite: str | Callable[[re.Match[str]], str]) -> Rule:
    """A rule for the answers that match `pattern` as a whole. `rewrite` is a template for the match, or a function."""

    def rule(answer: str) -> str:
        match = re.fullmatch(pattern, answer)
        if match is None:
            return answer
        return match.expand(rewrite) if isinstance(rewrite, str) else rewrite(match)

    return rule


def everywhere(pattern: str, rewrite: str | Callable[[re.Match[str]], str]) -> Rule:
    """A rule that rewrites all matches of `pattern`, except in answers with words."""
    return lambda answer: answer if re.search(_TEXT, answer) else re.sub(pattern, rewrite, answer)


def terms_of(answer: str) -> list[str] | None:
    """The terms of a sum with their signs, `x^2 - 2x + 1` -> `+x^2`, `-2x`, `+1`. None if the answer is no sum."""
    if re.search(r"\\(?:text|mbox|begin|pm|in|cup)(?![A-Za-z])|[=,<>]", answer):
        return None
    terms, depth = ["+"], 0
    for char in answer.replace(" ", "~"):
        depth += (char in "({[") - (char in ")}]")
        if char in "+-" and depth == 0:
            terms.append(char)
        else:
            terms[-1] += char
    terms = [term.replace("~", " ").strip() for term in terms if term.strip("+~")]
    return terms if len(terms) > 1 else None


def sum_of(terms: list[str]) -> str:
    return "".join(terms).removeprefix("+").strip()


def _terms_reversed(answer: str) -> str:
    terms = terms_of(answer)
    return sum_of(terms[::-1]) if terms else answer


def _negated_twice(answer: str) -> str:
    terms = terms_of(answer)
    return f"-({sum_of(['+-'[term[0] == '+'] + term[1:] for term in terms])})" if terms else answer


def _with_common_factor(match: re.Match[str]) -> str:
    a, b = int(match[1]), int(match[4])
    common = gcd(a, b)
    return (
        f"{common}({'' if a == common else a // common}{match[2]} {match[3]} {b // common})" if common > 1 else match[0]
    )


def _without_spaces(answer: str) -> str:
    kept = rf"({_TEXT}[^{{}}]*\}}|\\[A-Za-z]+ (?=[A-Za-z]))| "
    return re.sub(kept, lambda match: match[1] or "", answer)


def _with_left_and_right(answer: str) -> str:
    if r"\left" in answer:
        return re.sub(r"\\(?:left|right)(?![A-Za-z])", "", answer)
    return everywhere(r"(\\\}|[)\]])", r"\\right\1")(everywhere(r"(\\\{|[(\[])", r"\\left\1")(answer))


def _grouped(separator: str) -> Rule:
    return whole(r"[0-9]{4,}", lambda match: f"{int(match[0]):,}".replace(",", separator))


def _as_decimal(match: re.Match[str]) -> str:
    """The fraction as a decimal, if that has at most six places."""
    scaled = Fraction(int(match[2]), int(match[3])) * 10**6
    if scaled.denominator > 1:
        return match[0]
    return match[1] + f"{scaled.numerator // 10**6}.{scaled.numerator % 10**6:06}".rstrip("0").rstrip(".")


def _as_repeating(match: re.Match[str]) -> str:
    """A number of thirds or ninths as a decimal with one repeating digit."""
    quotient, ninths = divmod(int(match[2]) * 9 // int(match[3]), 9)
    return rf"{match[1]}{quotient}.\overline{{{ninths}}}" if ninths else match[0]


def _as_mixed(match: re.Match[str]) -> str:
    quotient, remainder = divmod(int(match[2]), int(match[3]))
    return rf"{match[1]}{quotient}\frac{{{remainder}}}{{{match[3]}}}" if quotient and remainder else match[0]


def _as_square(match: re.Match[str]) -> str:
    root = isqrt(int(match[0]))
    return f"{root}^{{2}}" if root > 1 and root**2 == int(match[0]) else match[0]


def _as_array(match: re.Match[str]) -> str:
    columns = "c" * (1 + match[1].partition(r"\\")[0].count("&"))
    return rf"\left(\begin{{array}}{{{columns}}}{match[1]}\end{{array}}\right)"


def _as_inequality(match: re.Match[str]) -> str:
    left, low, high, right = match.groups()
    below = "" if "infty" in low else rf"{low.strip()} < " if left == "(" else rf"{low.strip()} \le "
    above = "" if "infty" in high else rf" < {high.strip()}" if right == ")" else rf" \le {high.strip()}"
    return f"{below}x{above}"


def _in_unicode(answer: str) -> str:
    if re.search(_TEXT, answer):
        return answer
    for command, character in _UNICODE.items():
        answer = re.sub(re.escape(command) + "(?![A-Za-z])", character, answer)
    return answer


_HALF_OPEN = r"(?=.*\\infty|\(.*\]|\[.*\))([(\[])([^,()\[\]]+),([^,()\[\]]+)([)\]])"  # not (2,4): it may be a point

EQUAL: dict[str, Rule] = {
    "in `$…$`": lambda answer: f"${answer}$",
    "in braces": lambda answer: f"{{{answer}}}",
    "with a final period": lambda answer: f"{answer}.",
    r"`\displaystyle` in front": lambda answer: rf"\displaystyle {answer}",
    r"`\;` on both sides": lambda answer: rf"\; {answer} \;",
    r"`\mathbf{5}` for `5`": everywhere(".+", r"\\mathbf{\g<0>}"),
    "without spaces": _without_spaces,
    "spaces around operators": everywhere(r"(?<=[0-9A-Za-z)]) ?([+=-]) ?(?=[0-9A-Za-z(\\])", r" \1 "),
    "spaces after commas": everywhere(r",(?! |\\!|[0-9]{3}(?![0-9]))", ", "),
    r"`\left(` for `(`, or without": _with_left_and_right,
    "unicode signs": _in_unicode,
    r"`\dfrac` for `\frac`": everywhere(r"\\frac", r"\\dfrac"),
    r"`\tfrac` for `\frac`": everywhere(r"\\d?frac", r"\\tfrac"),
    r"`\frac12` for `\frac{1}{2}`": everywhere(r"\\frac\{([0-9])\}\{([0-9])\}", r"\\frac\1\2"),
    r"`\frac{1}{2}` for `\frac12`": everywhere(r"\\frac ?([0-9]) ?(?:([0-9])|\{([0-9]+)\})", r"\\frac{\1}{\2\3}"),
    r"`1/2` for `\frac{1}{2}`": whole(_FRACTION, r"\1\2/\3"),
    r"`\frac{1}{2}` for `1/2`": everywhere(r"([0-9]+)/([0-9]+)", r"\\frac{\1}{\2}"),
    r"`\frac{-1}{2}` for `-\frac{1}{2}`": whole(_FRACTION.replace("-?", "-"), r"\\frac{-\2}{\3}"),
    r"`\frac{2}{4}` for `\frac{1}{2}`": whole(
        _FRACTION, lambda match: rf"{match[1]}\frac{{{2 * int(match[2])}}}{{{2 * int(match[3])}}}"
    ),
    r"`(a + b)/(c)` for `\frac{a + b}{c}`": whole(rf"\\d?frac{_GROUP}{_GROUP}", r"(\1)/(\2)"),
    r"`0.5` for `\frac{1}{2}`": whole(_FRACTION, _as_decimal),
    r"`0.\overline{3}` for `\frac{1}{3}`": whole(r"(-?)\\d?frac\{([0-9]+)\}\{([39])\}", _as_repeating),
    r"`1\frac{1}{2}` for `\frac{3}{2}`": whole(_FRACTION, _as_mixed),
    r"`\frac{3}{2}` for `1\frac{1}{2}`": whole(
        r"([0-9]+) ?\\frac\{([0-9]+)\}\{([0-9]+)\}",
        lambda match: rf"\frac{{{int(match[1]) * int(match[3]) + int(match[2])}}}{{{match[3]}}}",
    ),
    "`5.0` for `5`": whole(r"-?[0-9]+", r"\g<0>.0"),
    "`+5` for `5`": whole(r"[0-9.]+", r"+\g<0>"),
    "`005` for `5`": whole(r"[0-9]{1,2}", lambda match: match[0].zfill(3)),
    "`25` for `025`": whole(r"0([0-9]{2})", r"\1"),
    r"`\frac{10}{2}` for `5`": whole(r"-?[0-9]+", lambda match: rf"\frac{{{2 * int(match[0])}}}{{2}}"),
    "`4 + 1` for `5`": whole(r"[0-9]+", lambda match: f"{int(match[0]) - 1} + 1"),
    r"`\frac{10}{2} = 5` for `5`": whole(
        r"[1-9][0-9]*", lambda match: rf"\frac{{{2 * int(match[0])}}}{{2}} = {match[0]}"
    ),
    "`5^{2}` for `25`": whole(r"[0-9]+", _as_square),
    r"`\sqrt{25}` for `5`": whole(r"[0-9]+", lambda match: rf"\sqrt{{{int(match[0]) ** 2}}}"),
    r"`5 \times 10^{2}` for `500`": whole(
        r"([0-9]+?)(0{2,})", lambda match: rf"{match[1]} \times 10^{{{len(match[2])}}}"
    ),
    "`2,000` for `2000`": _grouped(","),
    "`2{,}000` for `2000`": _grouped("{,}"),
    r"`2\,000` for `2000`": _grouped(r"\,"),
    "`2000` for `2,000`": whole(r"[0-9]{1,3}(?:,(?:\\! ?)?[0-9]{3})+", lambda match: re.sub(r"[^0-9]", "", match[0])),
    "`0.50` for `0.5`": whole(r"[0-9]*\.[0-9]+", r"\g<0>0"),
    "`0.5` for `.5`": whole(r"\.[0-9]+", r"0\g<0>"),
    "`.5` for `0.5`": whole(r"0(\.[0-9]+)", r"\1"),
    r"`\frac{5}{10}` for `0.5`": whole(
        r"([0-9]*)\.([0-9]+)", lambda match: rf"\frac{{{int(match[1] + match[2])}}}{{{10 ** len(match[2])}}}"
    ),
    r"`50\%` for `0.5`": whole(
        r"([0-9]*)\.([0-9]{2})([0-9]*)", lambda match: rf"{int(match[1] + match[2])}.{match[3] or 0}\%"
    ),
    "`x^{5}` for `x^5`": everywhere(r"\^([0-9A-Za-z])", r"^{\1}"),
    r"`2 \cdot k` for `2k`": everywhere(r"(?<![\^_0-9])([0-9]+) ?(?=\\sqrt|\\pi|[A-Za-z])", r"\1 \\cdot "),
    r"`2 \times k` for `2k`": everywhere(r"(?<![\^_0-9])([0-9]+) ?(?=\\sqrt|\\pi|[A-Za-z])", r"\1 \\times "),
    "terms of a sum reversed": _terms_reversed,
    "`-(b - a)` for `a - b`": _negated_twice,
    r"`\sqrt{2} \cdot 3` for `3\sqrt{2}`": whole(r"([0-9]+) ?(\\sqrt\{?[0-9]+\}?|\\pi)", r"\2 \\cdot \1"),
    r"`\sqrt{18}` for `3\sqrt{2}`": lambda answer: re.sub(
        r"(?<![0-9.^_}])([0-9]+) ?\\sqrt(?:\{([0-9]+)\}|([0-9]))",
        lambda match: rf"\sqrt{{{int(match[1]) ** 2 * int(match[2] or match[3])}}}",
        answer,
    ),
    r"`\frac{1}{\sqrt{3}}` for `\frac{\sqrt{3}}{3}`": whole(
        r"\\frac\{\\sqrt\{([0-9]+)\}\}\{\1\}", r"\\frac{1}{\\sqrt{\1}}"
    ),
    r"`\frac{5}{4}\sqrt{3}` for `\frac{5\sqrt{3}}{4}`": whole(
        r"\\frac\{([0-9]+)(\\sqrt\{[0-9]+\})\}\{([0-9]+)\}", r"\\frac{\1}{\3}\2"
    ),
    r"`2^{1/2}` for `\sqrt{2}`": whole(r"\\sqrt\{([0-9]+)\}", r"\1^{1/2}"),
    r"`\sqrt{2}` for `\sqrt2`": everywhere(r"\\sqrt ?([0-9])", r"\\sqrt{\1}"),
    "`(b)(a)` for `(a)(b)`": whole(r"(\([^()]+\))(\([^()]+\))", r"\2\1"),
    "`2(k + 1)` for `2k + 2`": whole(r"([0-9]+)([a-z]) ?([+-]) ?([0-9]+)", _with_common_factor),
    "`xy + 2x + y + 2` for `(x+1)(y+2)`": whole(
        r"\(([a-z])\+([0-9]+)\)\(([a-z])\+([0-9]+)\)",
        lambda m: f"{m[1]}{m[3]} + {m[4]}{m[1]} + {m[2]}{m[3]} + {int(m[2]) * int(m[4])}",
    ),
    r"`a + b, a - b` for `a \pm b`": whole(r"([^,{}]*[^ ]) ?\\pm ?(.*)", r"\1 + \2, \1 - \2"),
    r"`\{1, 2\}` for `1, 2`": whole(rf"{_PAIR}(?:, ?-?[0-9]{{1,2}})*", r"\\{\g<0>\\}"),
    r"`1 \text{ and } 2` for `1, 2`": whole(_PAIR, r"\1\\text{ and }\2"),
    r"`x = 1 \text{ or } x = 2` for `1, 2`": whole(_PAIR, r"x = \1\\text{ or }x = \2"),
    r"`\{b, a\}` for `\{a, b\}`": whole(r"\\\{([^,]+),([^,]+)\\\}", r"\\{\2,\1\\}"),
    "`bmatrix` for `pmatrix`": everywhere("pmatrix", "bmatrix"),
    r"`\\[4pt]` for `\\` in a matrix": everywhere(r"\\\\", r"\\\\[4pt]"),
    r"`\begin{array}{cc}` for `\begin{pmatrix}`": everywhere(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", _as_array),
    r"`x \in [1,2)` for `[1,2)`": whole(_HALF_OPEN, r"x \\in \g<0>"),
    r"`1 \le x < 2` for `[1,2)`": whole(_HALF_OPEN, _as_inequality),
    r"`\{x \mid 1 \le x < 2\}` for `[1,2)`": whole(_HALF_OPEN, lambda match: rf"\{{x \mid {_as_inequality(match)}\}}"),
    r"`x < 1 \text{ or } x > 2` for `(-\infty,1) \cup (2,\infty)`": whole(
        r"\(-\\infty, ?([^,()]+)\) ?\\cup ?\(([^,()]+), ?\\infty\)", r"x < \1 \\text{ or } x > \2"
    ),
    r"`(1,3) \setminus \{2\}` for `(1,2) \cup (2,3)`": whole(
        r"(\([^,()]+,) ?([^,()]+)\) ?\\cup ?\(\2,( ?[^,()]+\))", r"\1\3 \\setminus \\{\2\\}"
    ),
    r"`B \cup A` for `A \cup B`": whole(r"(.*[^ ]) ?\\cup ?(.*)", r"\2 \\cup \1"),
    r"`+\infty` for `\infty`": everywhere(r"(?<!-)\\infty", r"+\\infty"),
    "`x = 5` for `5`": whole(_SCALAR, r"x = \g<0>"),
    r"`x = a \pm b` for `a \pm b`": whole(r"[^=,{]*\\pm[^=,]*", r"x = \g<0>"),
    "`-(y) = -(2x)` for `y = 2x`": whole(r"([^=]+?) ?= ?([^=]+)", r"-(\1) = -(\2)"),
    "`m + n = 5` for `5`": whole(r"[0-9]+", r"m + n = \g<0>"),
    "`2x = y` for `y = 2x`": whole(r"([^=]+?) ?= ?([^=]+)", r"\2 = \1"),
    "`5` for `x=5`": whole(rf"[a-z] ?= ?({_SCALAR})", r"\1"),
    r"`[1,2]` for `x \in [1,2]`": whole(r"[a-z] ?\\in ?(.*)", r"\1"),
    r"`\text{5}` for `5`": whole(r"[0-9]+", r"\\text{\g<0>}"),
    r"`east` for `\text{east}`": whole(r"\\text\{([A-Za-z]+)\}", r"\1"),
    r"`\mathrm{east}` for `\text{east}`": whole(r"\\text\{([A-Za-z]+)\}", r"\\mathrm{\1}"),
    r"`C` for `\text{(C)}`": whole(r"\\text\{\(([A-E])\)\}", r"\1"),
    "`5_{8}` for `5_8`": whole("([0-9]+)_([0-9])", r"\1_{\2}"),
    r"`5^{\circ}` for `5^\circ`": everywhere(r"\^\\circ", r"^{\\circ}"),
    r"`5\text{ degrees}` for `5^\circ`": whole(r"([0-9]+)\^\\circ", r"\1\\text{ degrees}"),
    r"`\frac{5\pi}{180}` for `5^\circ`": whole(r"([0-9]+)\^\\circ", r"\\frac{\1\\pi}{180}"),
    r"`5^\circ` for `5\text{ degrees}`": whole(r"(.*)\\text\{ degrees\}", r"\1^\\circ"),
    r"`5` for `5^\circ`": whole(r"([0-9]+)\^\\circ", r"\1"),
    r"`5\,\mathrm{cm}` for `5\text{ cm}`": whole(rf"(.*[0-9}}]) ?{_TEXT} ?([a-z]+)\}}(.*)", r"\1\\,\\mathrm{\2}\3"),
    r"`5` for `5\text{ cm}`": whole(rf"(.*[0-9}}]) ?{_TEXT} ?[a-z]+\}}(?:\^2)?", r"\1"),
    r"`5\text{ square cm}` for `5\text{ cm}^2`": whole(
        rf"(.*[0-9}}]) ?{_TEXT} ?([a-z]+)\}}\^2", r"\1\\text{ square \2}"
    ),
    r"`5\text{ units}` for `5`": whole(r"[0-9]+", r"\g<0>\\text{ units}"),
    r"`5` for `\$5`": whole(r"\\\$(.*)", r"\1"),
    r"`5\text{ dollars}` for `\$5`": whole(r"\\\$(.*)", r"\1\\text{ dollars}"),
}
