r"""The last layer of reading an answer: what the algebra library is given.

The library's parser skips commands that it does not know, adds a number to the bracket behind it, and loses primes and
transposes. So a text is read here first: each of its tokens must be one that the parser reads as it is meant, products
are written out, and a symbol with a prime gets a name of its own. Any other text stays unread.
"""

from __future__ import annotations

import re

from core.grading.names import names

_TOKEN = re.compile(
    r"\\(?:begin|end)\{[a-z]+\}|\\mathbb\{[A-Z]\}|\\[A-Za-z]+|\\[{}\\]|[0-9]+(?:\.[0-9]*)?|\.[0-9]+|[A-Za-z]|'+"
    r"|[-+/^_=<>()\[\]{},|!&]|\s+"
)
_COMMANDS = frozenset(
    names(
        "frac binom sqrt overline hat vec tilde cdot pm mp le ge ne infty pi circ cup cap setminus emptyset "
        "mid to sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp gcd lcm max min det "
        "lim sum prod int lfloor rfloor lceil rceil alpha beta gamma delta epsilon varepsilon zeta eta theta "
        "vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta "
        "Lambda Xi Pi Sigma Phi Psi Omega ell hbar"
    )
)
_MATRICES = frozenset(rf"\{side}{{{name}}}" for side in ("begin", "end") for name in ("pmatrix", "matrix", "vmatrix"))
# The library's imaginary unit, Euler's constant, and the function of this name.
_RENAMED = {"I": "Z_{symi}", r"\gamma": "g_{symgamma}", r"\Gamma": "G_{symgamma}"}
_SUPERSCRIPTS = re.compile(r"([A-Za-z])\^\{(T|\*)\}")
_MARKS = {"T": "tp", "*": "star"}
_MIXED = re.compile(r"(?<![0-9.])([0-9]+)(\\frac\{[0-9]+\}\{[0-9]+\})")
_NUMBER = re.compile(r"[0-9.]")
_DECIMAL = re.compile(r"([0-9]*)\.([0-9]*)")
_UNREAD = re.compile(
    r"\\(?:overline|hat|vec|tilde)\{(?![A-Za-z]+\})|(?<![A-Za-z])[0-9A-Za-z]\\\{|!!"
    r"|\\frac\{\\?(?:d|partial) ?[A-Za-z]?(?:\^\{[0-9]\})?\}\{d|\\frac\{d[^{}]*\}\{d"  # a derivative
    r"|\\int(?!_)|(?<![A-Za-z}])[0-9.]+_|[ACP]_\{[0-9]+\}\^\{[0-9]+\}"
)
_TRIGONOMETRIC = ("\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc")
_PRODUCT = re.compile(
    r"(?<=[)\]!])(?=[(\[0-9])|(?<=[0-9])(?=[(\[])|(?<=\\pi)(?=[(\[])|(?<=[)\]])(?=\\(?:frac|sqrt|pi))"
    r"|(?<=[0-9A-Za-z)\]}!])(?=\\binom)"
)
_AFTER_BINOMIAL = re.compile(r"(\\binom\{[^{}]*\}\{[^{}]*\})(?=[(\[0-9A-Za-z])")
_INTERVALS = re.compile(r"[\[(][^\[\]()]*,[^\[\]()]*[\])]")


def for_library(text: str) -> str | None:
    """The LaTeX of a normalised text that the library reads as it is meant; None if anything else is in the text."""
    if any(name in text for name in _TRIGONOMETRIC):
        text = text.replace(r"^{\circ}", r"\cdot\frac{\pi}{180}")
    text = _SUPERSCRIPTS.sub(lambda mark: f"{mark[1]}_{{{_MARKS[mark[2]]}}}", text.replace("%", r"\cdot\frac{1}{100}"))
    tokens, end = list[str](), 0
    while end < len(text):
        token = _TOKEN.match(text, end)
        if token is None:
            return None
        is_matrix = token[0].startswith((r"\begin", r"\end"))
        is_command = token[0][0] == "\\" and token[0][1:].isalpha()
        if (is_matrix and token[0] not in _MATRICES) or (is_command and token[0][1:] not in _COMMANDS):
            return None
        if _NUMBER.match(token[0]) and tokens and _NUMBER.match(tokens[-1]):  # `1.234.567` is no product
            return None
        end = token.end()
        if token[0][0] == "'":
            if not tokens or not (len(tokens[-1]) == 1 and tokens[-1].isalpha()):
                return None
            tokens.append(f"_{{prime{len(token[0])}}}")
        else:
            tokens.append(token[0])
    written = _joined(tokens)
    written = re.sub(r"(?<=[0-9])\^\{T\}", "^{T_{sym}}", written)
    if "^{T}" in written or "^{*}" in written or _UNREAD.search(written):
        return None
    written = _MIXED.sub(r"(\1+\2)", written)
    if not _INTERVALS.search(written):  # products of numbers and brackets are written out, except between intervals
        written = _AFTER_BINOMIAL.sub(r"\1\\cdot ", _PRODUCT.sub(r"\\cdot ", written))
    return _DECIMAL.sub(_fraction, written)


def _fraction(decimal: re.Match[str]) -> str:
    """A decimal as a fraction, because the library's parser keeps 15 digits."""
    whole, part = decimal.groups()
    return rf"\frac{{{int(whole + part)}}}{{{10 ** len(part)}}}" if part else whole


def _joined(tokens: list[str]) -> str:
    """The tokens as one text, in which symbols that mean something else to the library have other names."""
    written = list[str]()
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        renamed = following[:1] != "_" and (token, following) != (r"\Gamma", "(")
        symbol = _RENAMED.get(token, token) if renamed else token
        if symbol[:1].isalpha() and written and re.search(r"\\[A-Za-z]+$", written[-1]):
            written.append(" ")
        written.append(symbol)
    return "".join(written)
