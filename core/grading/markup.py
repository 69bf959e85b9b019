r"""The second layer of reading an answer, first part: what other languages than LaTeX put around an answer or into it,
HTML, Markdown, JSON and siunitx."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)(b|i|u|em|strong|span|code|sub|sup|p|div|br|answer)\b[^<>]{0,80}>", re.IGNORECASE)
_MARKED = re.compile(r"\$?(\*\*\*|\*\*|\*|__|```|``|`|\"|''|')(?=\S)(.*\S)\1\$?\.?", re.DOTALL)
_BOLD = re.compile(r"(?<![^\s:(])\*\*(?=[^\s*])([^*]*[^\s*])\*\*(?![^\s:.,;)])")
_HEADING = re.compile(r"\s*#{1,6}\s+(?=\S)")  # `#### 42` in GSM8K
_LOST_BACKSLASH = re.compile(r"(?<![\\A-Za-z])([dt]?f?rac|ext)\{")
_MATHS = re.compile(r"\\[()\[\]](?!\s*[0-9.]{1,9} ?(?:pt|em|ex|mm|cm)\])")
_QUANTITY = re.compile(r"\\(?:(?:SI|qty)\{([^{}]*)\}|unit\[([^\]]*)\]|si|unit)\{([^{}]*)\}")
_UNIT_PREFIX = re.compile(r"\\(kilo|centi|milli|mega|giga|micro|nano|deci)\\")
_DIMENSION = re.compile(r"\\(?:hskip|kern|mkern|vskip|mskip)\s*-?[0-9.]{1,9}\s*(?:pt|mu|em|ex|mm|cm|in)(?![a-z])")
_ESCAPES = re.compile(r"\\+")
_END_MARK = re.compile(r"(?<=[^\s{])\s*\\(?:square|Box)\s*$")
_NO_SPACE = re.compile(r",\s*\\!\s*")  # `1,\! 234` is 1234
_CURRENCY = re.compile(r"\$(?=-?[0-9.\\])")
_COMMAND = re.compile(
    r"\\\\(?:[{%$,;!]|\((?=.*\\\\\))|(?:[dt]?frac|d?binom|sqrt|text|mathrm|mathbf|times|cdot|pi|left|boxed|begin|circ|[lgn]eq?|infty"
    r"|alpha|beta|gamma|theta|lambda|pm|sin|cos|tan|log|ln|in|cup|cap|overline|mathbb|quad|ldots|dots)(?![A-Za-z]))"
)


def without_markup(text: str) -> str:
    """A text without HTML's tags, Markdown's marks and quotation marks around it, and the delimiters of mathematics."""
    while r"\\" in text and _COMMAND.search(text) and all(len(run) % 2 == 0 for run in _ESCAPES.findall(text)):
        text = _ESCAPES.sub(lambda run: run[0][::2], text)  # each was escaped for JSON
    if "rac{" in text or "ext{" in text:
        text = _LOST_BACKSLASH.sub(lambda lost: r"\text{" if lost[1] == "ext" else r"\frac{", text)
    text = _HEADING.sub("", text, count=1) if text.lstrip()[:1] == "#" else text
    if "</" in text or "<br" in text:
        text = _TAG.sub(_tag, text)
    text = text.strip()
    if "\\" in text:
        text = _DIMENSION.sub("", _END_MARK.sub("", _NO_SPACE.sub(",", _QUANTITY.sub(_quantity, text))))
    text = _BOLD.sub(r"\1", text) if "**" in text else text
    while (marked := _MARKED.fullmatch(text)) and marked[1] not in marked[2]:
        text = marked[2]
    text = _MATHS.sub("", text) if r"\begin" not in text else text
    if text.count("$") - text.count(r"\$") == 1:
        text = re.sub(rf"(?<!\\){_CURRENCY.pattern}", lambda _: r"\$", text)
    return text


def _quantity(quantity: re.Match[str]) -> str:
    """A number and a unit of siunitx: `\\qty{5}{\\kilo\\gram}`."""
    unit = _UNIT_PREFIX.sub(r"\1", quantity[3]).replace(r"\per", "/").replace("\\", " ")
    return rf"{quantity[1] or quantity[2] or ''}\text{{ {unit}}}"


def _tag(tag: re.Match[str]) -> str:
    raised = {"sup": "^", "sub": "_"}.get(tag[2].lower())
    return (
        " " if raised is None and tag[2].lower() == "br" else "" if raised is None else "}" if tag[1] else raised + "{"
    )
