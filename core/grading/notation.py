r"""The second layer of reading an answer, continued: plain text that stands for LaTeX, such as `sqrt(2)` and `x<=2`.

After it each value has one notation: arguments stand in braces, repeating decimals have an `\overline`, and a letter x
between two numbers is a times sign.
"""

from __future__ import annotations

import re

from core.grading.typography import NARROW
from core.grading.typography_tables import FUNCTIONS

_NAMES = "|".join(sorted(FUNCTIONS, key=len, reverse=True))
_ORDINAL = r"(?:\\text\{)?(?:st|nd|rd|th)\}?"
_GROUP = r"((?:[^{}]|\{[^{}]{0,100}\}){0,100})"
_OVER = rf"{_GROUP}\\(over|choose)(?![A-Za-z]){_GROUP}"
_INFIX = re.compile(rf"\{{{_OVER}\}}|^{_OVER}$")
_ROOT = re.compile(r"\\sqrt *(?:\[[0-9a-z]+\] *)?\(|(?<![\\A-Za-z])sqrt *\(|\^ *\(")
_TOWER = re.compile(r"\^\{([^{}]+)\}\^\{((?:[^{}]|\{[^{}]*\})+)\}(?!\^)")
_MATRIX = re.compile(r"[(\[] *\\begin\{matrix\}((?:(?!\\begin).)*?)\\end\{matrix\} *[)\]]", re.DOTALL)
_DOTS = re.compile(r"\\dot\{([0-9])\}(?:([0-9]*)\\dot\{([0-9])\})?")
_FRENCH = re.compile(r"([\[\](])([^\[\](),]+,[^\[\](),]+)([\[\])])")
_CLOSES_FRENCH = re.compile(r"^[^\[(]*\]|\[[^\])]*$")
_AND_A = {"half": r"\frac{1}{2}", "third": r"\frac{1}{3}", "quarter": r"\frac{1}{4}"}
_NEGATED = {"=": r"\ne ", "<": r"\ge ", ">": r"\le ", r"\le": ">", r"\ge": "<"}
_BASE = r"(?:\((?:in )?base|(?:in )?base|\(?\\text\{\s*\(?(?:in )?base\s*\})"
# What a text must hold for a rewrite to apply, its pattern, and what it writes.
_REWRITES = [
    (needle, re.compile(pattern), replacement)
    for needle, pattern, replacement in (
        (NARROW, rf"(?<=[0-9])(?:\{{{NARROW}\}}|{NARROW}) *(?=[0-9]{{3}}(?:[,{NARROW}{{.]|(?![0-9])))", ""),
        (NARROW, rf"\{{?{NARROW}\}}?", " "),
        ("**", r"\*\*", "^"),
        ("x", r"(?<=[0-9}])\s*(?:\\text\{x\}|x)\s*(?=[0-9])", r"\\cdot "),
        ("х", r"(?<=[0-9}])\s*х\s*(?=[0-9])", r"\\cdot "),  # Cyrillic
        ("x", r"(?<=[0-9]\)) x (?=\([0-9])", r"\\cdot "),
        ("X", r"(?<=[0-9}])\s*(?:\\text\{X\}|X)\s*(?=[0-9])", r"\\cdot "),
        ("^", r"\^\s*(?:\*|\{\s*(?:\*|\\cdot)\s*\})", r"^{*}"),
        ("/", r"\+\s*/\s*-", r"\\pm "),
        ("*", r"(?<!\^\{)\*", r"\\cdot "),
        ("<=", r"<=", r"\\le "),
        (">=", r">=", r"\\ge "),
        ("!=", r"!=", r"\\ne "),
        ("=", r"(?::\s*)?=(?:\s*=)*", "="),
        (r"\not", r"\\not\s*(=|<|>|\\le|\\ge)(?![A-Za-z])", lambda relation: _NEGATED[relation[1]]),
        ("0b", r"(?<![0-9A-Za-z.])0b([01]+)(?![0-9A-Za-z.])", r"\1_{2}"),
        ("0x", r"(?<![0-9A-Za-z.])0x([0-9]*[A-F][0-9A-F]*)(?![0-9A-Za-z.])", r"\1_{16}"),
        ("base", rf"(?<=[0-9A-Z)])\s*{_BASE}\s*([0-9]+)\)?$", r"_{\1}"),
        ("", rf"(?<![\\A-Za-z])({_NAMES})(?=[ (^_{{0-9\\])(?! [A-Za-z]{{2}})", r"\\\1"),
        ("pi", r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
        ("inf", r"(?<![\\A-Za-z])inf(?:inity|ty)(?![A-Za-z])", r"\\infty "),
        ("^", r"\^\s*(-?[0-9]+|[A-Za-z])", r"^{\1}"),
        ("_", r"_\s*([0-9]+|[A-Za-z])", r"_{\1}"),
        (r"\circ", r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])", r"^{\\circ}"),
        (r"\{", r"\\\{\s*\\\}", r"\\emptyset "),
        (r"\c", r"(\\(?:cup|cap)\s*)\{([^{}]*)\}", r"\1\\{\2\\}"),
        (r"\in", r"(\\in\s*)\{([^{}]*)\}", r"\1\\{\2\\}"),
        (r"\s", r"(\\setminus\s*)\{([^{}]*)\}", r"\1\\{\2\\}"),
        (r"\c", r"(?<![\\A-Za-z}^_])\{([^{}]*)\}(?=\s*\\(?:cup|cap)(?![A-Za-z]))", r"\\{\1\\}"),
        ("'", r"\^\s*\{?('+)\}?", r"\1"),
        ("C", r"(?<![A-Za-z\\}])C_\{([0-9]{1,3})\}\^\{([0-9]{1,3})\}", r"\\binom{\1}{\2}"),
        ("}_{", r"\\text\{([A-Z]+)\}([0-9]*)(?=_\{1[1-6]\})", r"\1\2"),
        ("}_{", r"\\overline\{([0-9A-Z]+)\}(?=_\{[0-9]+\})", r"\1"),
        ("'", r"^([0-9]+)'\s*([0-9.]+)(?:''|\")$", r"\1\\text{ft}\2\\text{in}"),
        ("'", r"^([0-9]+)\s*\^\{\\circ\}\s*([0-9.]+)'$", r"\1\\text{degrees}\2\\text{arcmin}"),
        (r"\ang{", r"\\ang\{([0-9.]+)\}", r"\1^{\\circ}"),
        ("/(", r"/\(((?:\\text\{[^{}]*\}(?:\^\{-?[0-9]\})?(?:\\cdot| )*)+)\)", r"/\1"),
        ("", rf"(?<=[0-9])\s*(?:\^\{{\s*(?:{_ORDINAL})\s*\}}|-\s*(?:{_ORDINAL})(?![A-Za-z]))", r"\\text{th}"),
        (r"\mu", r"(?<=[0-9}])\s*\\mu\s*\\text\{([mgslLAFHCJWVN])\}", r"\\text{u\1}"),
        (r"\Omega", r"(?<=[0-9}])\s*(?:\\text\{([kM])\}|([kM]))?\s*\\Omega(?![A-Za-z])\s*$", r"\\text{\1\2ohm}"),
        (".(", r"([0-9]*\.)\(([0-9]+)\)(?![0-9(^])", r"\1\\overline{\2}"),
        (r"\overline", r"(\\overline\{[0-9]+)\}\s*\\overline\{([0-9]+\})", r"\1\2"),
        (r"\overline", r"(\\overline\{[0-9]+\})\s*\.\.\.$", r"\1"),
        ("and", r"(?<=[0-9]) and (?:a|one)[ -](half|third|quarter)(?![a-z])", lambda part: _AND_A[part[1]]),
        ("per", r"(?<=[0-9}]) *(?:\\text\{per ?cent(?:age)?\}|per ?cent(?:age)?(?![a-z]))", "%"),
        ("pct", r"(?<=[0-9}]) *(?:\\text\{pct\}|pct(?![a-z]))", "%"),
        (r"\text", r"\\text\{([a-z]+)\}(?=[\^_(])", lambda name: rf"\{name[1]}" if name[1] in FUNCTIONS else name[0]),
    )
]


def mathematical(text: str) -> str:
    """A typeset text with one notation for each value."""
    if r"\over" in text or r"\choose" in text:
        text = _INFIX.sub(_prefixed, text)
    text = _with_braces(text)
    for needle, pattern, replacement in _REWRITES:
        if needle in text:
            text = pattern.sub(replacement, text)
    while (tower := _TOWER.sub(r"^{\1^{\2}}", text)) != text:
        text = tower
    if r"\dot{" in text:
        text = _DOTS.sub(_repeating, text)
    if r"\begin" in text:
        text = _MATRIX.sub(r"\\begin{pmatrix}\1\\end{pmatrix}", text)
    return _FRENCH.sub(_open_interval, text) if "," in text and _CLOSES_FRENCH.search(text) else text


def _prefixed(infix: re.Match[str]) -> str:
    above, command, below = infix.groups()[:3] if infix[2] else infix.groups()[3:]
    return rf"\{'frac' if command == 'over' else 'binom'}{{{above.strip()}}}{{{below.strip()}}}"


def _repeating(dotted: re.Match[str]) -> str:
    r"""`0.\dot{3}` and `0.\dot{1}4285\dot{7}`: the dots mark the first and the last digit of the period."""
    first, between, last = dotted.groups()
    return rf"\overline{{{first}{between or ''}{last or ''}}}"


def _open_interval(interval: re.Match[str]) -> str:
    """`]1,2[` is `(1,2)`."""
    opening, ends, closing = interval.groups()
    return ("(" if opening == "]" else opening) + ends + (")" if closing == "[" else closing)


def _with_braces(text: str) -> str:
    r"""`\sqrt(2)`, `sqrt(2)` and `2^(3)` with braces for the parentheses."""
    start = 0
    while root := _ROOT.search(text, start):
        opening = root.end() - 1
        depth = 0
        for end in range(opening, len(text)):
            depth += (text[end] == "(") - (text[end] == ")")
            if depth == 0:
                break
        else:
            return text
        command = "\\" + root[0][:-1].strip(" \\") if root[0][0] != "^" else "^"
        text = f"{text[: root.start()]}{command}{{{text[opening + 1 : end]}}}{text[end + 1 :]}"
        start = root.start() + len(command)
    return text
