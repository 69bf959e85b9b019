r"""The third layer of reading an answer: prose. What leads to the value goes, and what separates values becomes `, `.

A comma with a space, a semicolon, and words such as `and` separate values; a comma between groups of three digits does
not. A unit that is written without `\text{}` gets one, so that later layers tell it from a product of symbols.
"""

from __future__ import annotations

import re

from core.grading.names import names
from core.grading.number_words import MAGNITUDES, number_in_words
from core.grading.units import is_currency, read_unit

_LEAD = re.compile(
    r"(?:\\(?:therefore|Rightarrow|because)(?![A-Za-z])\s*|=\s*"
    r"|(?:\\text\{)?(?:(?:so|thus|hence|therefore|finally)(?![A-Za-z])\}?,?\s*)"
    r"|(?:\\text\{)?(?:the )?(?:final |correct )?(?:answer|result|solution|value|option|choice)(?: is| are| equals)?"
    r"(?:\}\s*[:=]?|\s*[:=]|(?<=is|re|ls)(?![A-Za-z]))\s*"
    r"|the (?=[0-9])|(?:\\text\{)?(?:option|choice) (?=\(?[A-J]\)?\}?$)|ans[.:] ?"
    r"|(?:\\text\{)?the [a-z]+(?: [a-z]+){0,6} (?:is|are|equals)(?![a-z])\}?:?\s*(?=[-+]?[0-9$\\.])"
    r"|(?:\\text\{)?答案[是为]?\}?:?\s*)",
    re.IGNORECASE,
)
_MAX_LEADS = 4
_TURNS = re.compile(r"(?i)(?:not?|never|nor|neither|than|half|twice|wrong|incorrect|false|least|most|except)(?![a-z])")
_CHOICE = re.compile(r"\(?([A-J])\)?[.:]?")
_ISLAND = re.compile(r"\\text\{([^{}]*)\}")
_PHRASE = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_LETTERS_JOINED = re.compile(r"[A-Z]{1,4}(?: (?:and|or) [A-Z]{1,4})+")  # `A and C`, `I and II`
_GOES_ON = re.compile(r"[0-9,}] ?\.\.\.$")  # `0.333...` is not 0.333
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])")
_AND = frozenset(["and", "und", "et", "y", "и", "和", "与", "及"])
_OR = frozenset(["or", "oder", "ou", "o", "или", "或", "或者"])
_SEPARATOR = re.compile(
    r"[,;\s]*(?:\\text\{([^{}]*)\}|(?<![\\A-Za-z])(and|or|und|oder|et|ou)(?![A-Za-z])|((?<![^\W\d_])(?:и|или)(?![^\W\d_])|和|与|及|或者?)"
    r"|(?<=[0-9)}]) (y|o) (?=[0-9(\\-]))\s*"
)
_LOWER_WORD = re.compile(r"\s*(?:\\text\{\s*)?(?!(?:and|or)\b)[a-z]{2}")
_GROUPED = re.compile(r"(?<![0-9.,}])([0-9]{1,3}(?:,[0-9]{3})+)(?![0-9]|,[0-9])")
_BRACED_GROUPS = re.compile(r"(?<![0-9}])[0-9]{1,3}(?:\{,\}[0-9]{3})+(?![0-9]|\{,\})")
_EUROPEAN = re.compile(r"(?<![0-9.,}])[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]{1,2}(?![0-9]|,[0-9])")
_INDIAN = re.compile(r"(?<![0-9.,}])[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9]|,[0-9])")
_BRACKET = re.compile(r"\\\{|\\\}|[()\[\]]")
_BARE_UNIT = re.compile(
    r"(?<=[0-9)}])( ?)([^\W\d_][^\W\d_. ]*(?:\.? [^\W\d_][^\W\d_.]*)*(?:\^\{-?[1-4]\})?"
    r"(?:/[^\W\d_]+(?:\^\{[1-4]\})?)?\.?)(?=$|, |\s*[,;)])"
)
_PER = re.compile(r"(?<=[0-9)}])/([a-z]{2,})$")
_USUAL = frozenset(
    names("mm cm dm km in ft yd mi mg kg lb lbs ml mL dl oz hr Hz eV kW kV kJ GB MB KB kB TB st nd rd th")
)
_CODE = re.compile(r"([+-]?)\s*(Rs\.?|[A-Z]{3})\s*(?=[0-9.\\])")
_SPACES = re.compile(r" +")
_LETTERS_BEFORE = re.compile(r"(\\?)([^\W\d_]+)$")
_LETTERS_AFTER = re.compile(r"([^\W\d_]+)(?:\^\{[1-4]\})?(?=$|,|\))?")
_SHORT_UNIT = re.compile(r"([A-Za-z]{1,2}(?:\^\{[23]\})?)(?=$|,)")


def without_prose(text: str) -> str:
    """The answer that a text states: a single value, or values separated by `, `."""
    text = " ".join(text.split())
    text = text.lstrip(",;: ").removesuffix("/-")  # `Rs. 500/-`
    text = text if _GOES_ON.search(text) else text.rstrip(".,;: ")
    for _ in range(_MAX_LEADS):
        text, before = _without_lead(text), text
        if text == before:
            break
    if choice := _CHOICE.fullmatch(text):
        return choice[1]
    if (phrase := _as_phrase(text)) is not None:
        return phrase
    if (" and " in text or " or " in text) and _LETTERS_JOINED.fullmatch(
        words := " ".join(_ISLAND.sub(r" \1 ", text).split())
    ):
        text = words
    text = _separated(text)
    text = _CODE.sub(
        lambda code: rf"{code[1]}\text{{{code[2].rstrip('.')}}}" if is_currency(code[2]) else code[0], text
    )
    if "/" in text:
        text = _PER.sub(lambda unit: rf"/\text{{{unit[1]}}}" if read_unit(unit[1]) else unit[0], text)
    text = _BARE_UNIT.sub(_marked_unit, text)
    text = _without_spaces(_ISLAND.sub(_unwrapped, text))
    body = text.lstrip("+- ")  # a run of leading signs is one `-` or none
    text = "-" + body if text[: len(text) - len(body)].count("-") % 2 else body
    return re.sub(r"(?<!\{),(?!\})\s*", ", ", _ungrouped(text)).strip()


def _without_lead(text: str) -> str:
    lead = _LEAD.match(text)
    if lead is None or _TURNS.search(lead[0]) or not (rest := text[lead.end() :].strip(" ")):
        return text
    if lead[0].startswith(r"\text{") and "}" not in lead[0]:
        return r"\text{" + rest
    return rest


def _as_phrase(text: str) -> str | None:
    r"""The words if the text is nothing else: in lower case, or in `\text{}` if they are two letters, which may be
    symbols: their case and their order count then."""
    in_text = r"\text{" in text
    words = " ".join(_ISLAND.sub(r" \1 ", text).split()) if in_text else text
    if _PHRASE.fullmatch(words) is None or _LETTERS_JOINED.fullmatch(words):
        return None
    if len(words) > 2 or words.casefold() == "no" or not words.isascii():
        word = words.casefold()
        number, _, noun = words.rpartition(" ")
        if (value := number_in_words(word)) is not None:
            return value
        number = re.sub(r" an?$", "", number)
        if number and (value := number_in_words(number)) is not None and read_unit(noun) is not None:
            return rf"{value}\text{{{noun}}}"
        return word if len(words) > 1 or not in_text else words
    return (
        rf"\text{{{words}}}" if len(words) == 2 and (in_text or words.isupper()) else words if len(words) < 2 else None
    )


def _separated(text: str) -> str:
    """A text with `, ` between its values, and without separators of thousands.

    Between inequalities the words stay, because `and` and `or` differ there.
    """
    if _INEQUALITY.search(text):
        text = _SEPARATOR.sub(lambda word: _separator(word, r"\text{and}", r"\text{or}"), text)
    else:
        text = _SEPARATOR.sub(lambda word: _separator(word, ", ", ", "), text).strip(", ")
    text = _BRACED_GROUPS.sub(lambda number: number[0].replace("{,}", ""), text)
    if "," in text:
        pieces, depth, start = list[str](), 0, 0  # separators of thousands only stand outside of brackets
        for bracket in _BRACKET.finditer(text):
            if depth == 0:
                pieces.append(_without_groups(text[start : bracket.start()]))
                start = bracket.start()
            depth = max(0, depth + (1 if bracket[0][-1] in "([{" else -1))
            if depth == 0:
                pieces.append(text[start : bracket.end()])
                start = bracket.end()
        pieces.append(_without_groups(text[start:]) if depth == 0 else text[start:])
        text = "".join(pieces)
        return text if ";" not in text else re.sub(r"(?<=[)\]}])\s*;\s*(?=[(\[\\])", ", ", text)
    return text.replace(";", ", ")


def _separator(separator: re.Match[str], between: str, alternatively: str) -> str:
    """What to write for a word: for one that joins values, or one that offers values; or the text itself."""
    word = next(filter(None, separator.groups()), "").strip()
    if _LOWER_WORD.match(separator.string, separator.end()):
        return separator[0]  # `5 or so apples` gives one value
    if word in ("y", "o") and separator.string[separator.start() - 1 : separator.start()] not in tuple("0123456789)}"):
        return separator[0]
    return between if word in _AND else alternatively if word in _OR else separator[0]


def _without_groups(text: str) -> str:
    text = _GROUPED.sub(lambda number: number[0].replace(",", ""), text)
    text = _EUROPEAN.sub(lambda number: number[0].replace(",", "{,}"), text)
    # 12,34,567 may be a number of India or a list: it stays unread.
    return _INDIAN.sub(lambda number: number[0].replace(",", "{,}"), text)


def _marked_unit(marked: re.Match[str]) -> str:
    r"""A unit in `\text{}`. A text of two letters that is rarely a unit may be a product: it stays as it is."""
    space, written = marked.groups()
    magnitude, _, noun = re.sub("^([万亿])(?=.)", r"\1 ", written).partition(" ")
    if magnitude in MAGNITUDES and (not noun or read_unit(noun)):
        return rf"\text{{{f'{magnitude} {noun}'.strip()}}}"
    unit = read_unit(written)
    first = re.split(r"[ ./^]", written)[0]
    short = len(first) < 3 and first.isascii() and first not in _USUAL and "/" not in written and " " not in written
    if unit is None or short or (unit.powers[0][0].endswith("(counted)") and not (space and len(written) > 3)):
        return marked[0]
    parts = re.split(r"(/|\^\{-?[1-4]\})", written)
    return "".join(part if part[:1] in ("/", "^", "") else rf"\text{{{part.strip('. ')}}}" for part in parts)


def _unwrapped(island: re.Match[str]) -> str:
    r"""A letter in `\text{}` that is no unit of a number, as a symbol."""
    letter, before = island[1].strip(), island.string[: island.start()].rstrip()
    after_number = before[-1:] in tuple("0123456789)}%/") or before.endswith(r"\cdot")
    if len(letter) != 1 or not letter.isascii() or (after_number and read_unit(letter) is not None):
        return rf"\text{{{letter}}}"
    return f" {letter}" if re.search(r"\\[A-Za-z]+$", before) else letter


def _without_spaces(text: str) -> str:
    if r"\text{" not in text:
        return _SPACES.sub(_kept_space, text.strip())
    parts = re.split(r"(\\text\{[^{}]*\})", text.strip())
    return "".join(part if i % 2 else _SPACES.sub(_kept_space, part) for i, part in enumerate(parts))


def _kept_space(space: re.Match[str]) -> str:
    """A space that carries meaning: between two numbers, between words, after a command, before a short unit."""
    text, start, end = space.string, space.start(), space.end()
    before, after = text[start - 1 : start], text[end : end + 1]
    if (before.isdigit() and after.isdigit()) or (before.isdigit() and text[end : end + 2].strip(".").isdigit()):
        return " "
    if not after.isalpha():
        word = after.isdigit() and re.search(
            r"(?:^|[^\\A-Za-z])[A-Za-z]{2,}$|[0-9] [A-Za-z]$", text[max(0, start - 40) : start]
        )
        return " " if word else ""
    if before.isdigit() and re.match(r"[A-Za-z] [0-9]", text[end : end + 3]):
        return " "
    if before.isdigit() or before in ("}", ")"):
        short = _SHORT_UNIT.match(text, end)
        return " " if short and read_unit(short[1]) is not None else ""
    letters = _LETTERS_BEFORE.search(text[max(0, start - 40) : start])
    if letters is None:
        return ""
    following = _LETTERS_AFTER.match(text, end)
    words = len(letters[2]) > 1 or (following is not None and len(following[1]) > 1)
    return " " if letters[1] or words else ""


def _ungrouped(text: str) -> str:
    r"""Remove the braces around the whole text, and the parentheses unless a comma makes it a tuple or an interval.

    `{1,2}` is the set `\{1,2\}`, and `[5]` is 5.
    """
    if text[:1] not in ("(", "{", "["):
        return text
    if re.fullmatch(r"\[-?[0-9.]+\]", text):
        return text[1:-1]
    if re.fullmatch(r"\{[^{}()\[\]]*,[^{}()\[\]]*\}", text):
        return rf"\{{{text[1:-1]}\}}"
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
