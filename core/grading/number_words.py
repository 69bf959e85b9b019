"""Numbers in English words: `twenty-five`, `two thirds`, `minus one hundred and five`, `fifty percent`."""

from __future__ import annotations

import re

from core.grading.names import names

CARDINALS = {
    word: number
    for number, word in enumerate(
        names(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen"
        )
    )
}
MAGNITUDES = {
    **{"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    **{"万": 10**4, "亿": 10**8},
}
_TENS = dict(zip(names("twenty thirty forty fifty sixty seventy eighty ninety"), range(20, 100, 10), strict=True))
_PARTS = dict(
    zip(
        names("half third quarter fourth fifth sixth seventh eighth ninth tenth"), [2, 3, 4, *range(4, 11)], strict=True
    )
)
_PARTS |= {f"{part}s": number for part, number in _PARTS.items() if part != "half"} | {"halves": 2}
_MOST_WORDS = 12
# Words that stand for a number, alone or in a phrase that this module does not read.
NUMBER_WORDS = frozenset([*CARDINALS, *MAGNITUDES, *_TENS, *_PARTS]) | set(
    names(
        "no none nothing nil nought naught once twice thrice double triple single couple pair "
        "score gross all every any first second "
        "eins zwei drei vier sechs sieben acht neun zehn elf null deux trois quatre cinq sept huit neuf dix onze douze "
        "uno dos tres cuatro cinco seis siete ocho nueve diez due tre quattro cinque sei sette otto nove dieci"
    )
)


def number_in_words(text: str) -> str | None:
    """The number that a phrase of English names, as `25`, `2/3`, `-5` or `50%`; or None."""
    words = re.split(r"[ -]+", text.casefold())
    if len(words) > _MOST_WORDS or words[-1] == "a":
        return None
    sign = "-" if words[0] in ("minus", "negative") else ""
    words = words[1:] if sign else words
    percent = "%" if words[-1:] == ["percent"] else ""
    words = words[:-1] if percent else words
    if (number := _cardinal(words)) is not None:
        return f"{sign}{number}{percent}"
    *above, part = words or [""]
    if part not in _PARTS:
        return None
    if above[-2:] in (["and", "a"], ["and", "one"]) and (whole := _cardinal(above[:-2])):
        return rf"{sign}{whole}\frac{{1}}{{{_PARTS[part]}}}{percent}"
    count = _cardinal(above) if above else 1 if part == "half" else None
    fits = count and (count == 1) == (part[-1] != "s")
    return f"{sign}{count}/{_PARTS[part]}{percent}" if fits else None


def _cardinal(words: list[str]) -> int | None:
    for name, size in reversed(MAGNITUDES.items()):
        if name in words:
            i = words.index(name)
            above, rest = _cardinal(words[:i]), words[i + 1 :]
            below = _cardinal(rest[rest[:1] == ["and"] :]) if rest else 0
            return above * size + below if above and below is not None and above < 1000 and below < size else None
    if len(words) == 2 and words[0] in _TENS and 0 < CARDINALS.get(words[1], 0) < 10:
        return _TENS[words[0]] + CARDINALS[words[1]]
    return {**CARDINALS, **_TENS, "a": 1}.get(words[0]) if len(words) == 1 else None
