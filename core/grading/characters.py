"""The first layer of reading an answer: characters. Unicode becomes ASCII and LaTeX commands.

What is left of Unicode afterwards is letters of other scripts, signs of currencies, and signs that nothing here knows.
"""

from __future__ import annotations

import html
import re
import unicodedata

from core.grading.names import names

_ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}[0-9]{0,2}|#[0-9]{1,6}|#x[0-9A-Fa-f]{1,5});")

# An escape that JSON or Python has read, `\f` of `\frac`, and how the command goes on: only then it was a command.
_LOST = {
    "\a": "lpha|ngle|pprox|rc",
    "\b": "oxed|inom|egin|ar|eta|ig|mod|oldsymbol",
    "\t": "ext|imes|heta|an|frac|au|riangle|o(?![a-z])",
    "\n": "eq|e(?![a-z])|abla|ewline",
    "\v": "ec|arnothing|ert",
    "\f": "rac|lo|box|orall",
    "\r": "ight|angle|m(?![a-z])|floor|ceil|ho",
}
_LETTER_OF = dict(zip("\a\b\t\n\v\f\r", "abtnvfr", strict=True))
_LOST_COMMAND = re.compile("|".join(f"{re.escape(char)}(?={rest})" for char, rest in _LOST.items()))

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵀ", "0123456789+-=()niT", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢⱼₖₘₙₓ", "0123456789+-=()aeijkmnx", strict=True))
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_OVERLINED = re.compile("((?:[0-9]\u0305)+)")
_DOTTED = re.compile("([0-9])\u0307")
_FRACTION_SLASH = re.compile("([0-9]+)\u2044([0-9]+)")
_GROUPED = re.compile("(?<=[0-9])[\u00a0\u2007\u2008\u2009\u200a\u202f](?=[0-9]{3}(?![0-9]))")

_MICRO = re.compile("([0-9]) ?[µμ]([mgslLAFHCJWVN])(?![A-Za-z])")
_ROOTED = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹]+)√")
_SMALL_FRACTION = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹]+)[\u2044/]([₀₁₂₃₄₅₆₇₈₉]+)")
_BETWEEN_CIRCLED = re.compile("(?<=[0-9①-⑳])(?=[①-⑳])|(?<=[①-⑳])(?=[0-9])")  # ①③ are the first and the third

_GREEK = names(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma "
    "sigma tau upsilon phi chi psi omega"
)
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—―−﹣－⁃", "-"),
        **dict.fromkeys("′ʹ’‘ʼ", "'"),
        **dict.fromkeys("″“”„«»「」『』", '"'),
        **{chr(0x3B1 + i): rf"\{name} " for i, name in enumerate(_GREEK) if name != "omicron"},
        **{
            char: rf"\{name} "
            for char, name in zip(
                "ΓΔΘΛΞΠΣΦΨΩ",
                ["Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"],
                strict=True,
            )
        },
        **dict.fromkeys("×·⋅•∙∗✕✖・⨯", r"\cdot "),
        **dict.fromkeys("✓✔\u20e3", ""),
        **dict.fromkeys("≤⩽≦", r"\le "),
        **dict.fromkeys("≥⩾≧", r"\ge "),
        "Ω": r"\Omega ",
        "µ": r"\mu ",
        "ϵ": r"\epsilon ",
        "ϕ": r"\phi ",
        "℃": r"^{\circ}\text{C}",
        "℉": r"^{\circ}\text{F}",
        "°": r"^{\circ}",
        "º": r"^{\circ}",
        "˚": r"^{\circ}",
        "÷": "/",
        "∕": "/",
        "∞": r"\infty ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "≡": r"\equiv ",
        "±": r"\pm ",
        "∓": r"\mp ",
        "√": r"\sqrt ",
        "∛": r"\sqrt[3] ",
        "∜": r"\sqrt[4] ",
        "∈": r"\in ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∖": r"\setminus ",
        "∅": r"\emptyset ",
        "∧": r"\land ",
        "∨": r"\lor ",
        "∴": r"\therefore ",
        "→": r"\to ",
        "⇒": r"\Rightarrow ",
        "∠": r"\angle ",
        "∆": r"\Delta ",
        "ℓ": r"\ell ",
        "⌊": r"\lfloor ",
        "⌋": r"\rfloor ",
        "⌈": r"\lceil ",
        "⌉": r"\rceil ",
        "‖": r"\|",
        "ℝ": r"\mathbb{R}",
        "ℤ": r"\mathbb{Z}",
        "ℕ": r"\mathbb{N}",
        "ℚ": r"\mathbb{Q}",
        "ℂ": r"\mathbb{C}",
        "…": "...",
        "⋯": "...",
        "∶": ":",
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
        "【": "[",
        "】": "]",
        "〔": "[",
        "〕": "]",
        "、": ", ",
        "。": ".",
        "٫": ".",
        "٬": ",",
        "¢": r"\text{ cents}",
        "￠": r"\text{ cents}",
    }
)


def plain(answer: str) -> str:
    """An answer with its Unicode characters in ASCII and LaTeX, where that loses nothing.

    Compatible characters, such as full-width ones, become their plain form (NFKC); digits of all scripts become ASCII
    digits; `x²` becomes `x^{2}`, `½` becomes `\\frac{1}{2}`, and invisible characters go.
    """
    text = _LOST_COMMAND.sub(lambda lost: "\\" + _LETTER_OF[lost[0]], answer)
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    return text if text.isascii() else _in_ascii(text)


def _in_ascii(text: str) -> str:
    text = _MICRO.sub(r"\1\\text{u\2}", _GROUPED.sub("", text))
    text = _SMALL_FRACTION.sub(lambda parts: unicodedata.normalize("NFKC", rf"\frac{{{parts[1]}}}{{{parts[2]}}}"), text)
    text = _ROOTED.sub(lambda root: rf"\sqrt[{unicodedata.normalize('NFKC', root[1])}] ", text)
    text = _BETWEEN_CIRCLED.sub(", ", text)
    text = _RAISED.sub(lambda run: f"^{{{''.join(map(_SUPERSCRIPTS.__getitem__, run[0]))}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{''.join(map(_SUBSCRIPTS.__getitem__, run[0]))}}}", text)
    text = "".join(map(_fraction, text)).translate(_SIGNS)
    text = "".join(map(_visible, unicodedata.normalize("NFKC", text))).translate(_SIGNS)
    text = _FRACTION_SLASH.sub(r"\\frac{\1}{\2}", text)
    text = _OVERLINED.sub(lambda run: rf"\overline{{{run[0].replace(chr(0x305), '')}}}", text)
    return _DOTTED.sub(r"\\dot{\1}", text)


def _fraction(char: str) -> str:
    """`½` as `\\frac{1}{2}`, and `㎡` as `m^{2}`: the normal form alone would make 112 of `1½`."""
    if "\u3371" <= char <= "\u33df":
        unit = unicodedata.normalize("NFKC", char)
        return rf"\text{{{unit.rstrip('23')}}}" + (f"^{{{unit[-1]}}}" if unit[-1] in "23" else "")
    if char.isascii() or unicodedata.category(char) != "No":
        return char
    numerator, slash, denominator = unicodedata.normalize("NFKC", char).partition("\u2044")
    return rf"\frac{{{numerator}}}{{{denominator}}}" if slash and denominator else char


def _visible(char: str) -> str:
    """The character; "" if it is invisible, a space if it is blank, and the ASCII digit if it is a digit."""
    if char.isascii():
        return char
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category == "Cf" or "\ufe00" <= char <= "\ufe0f":
        return ""
    return " " if category in ("Zs", "Zl", "Zp") else char
