"""The kinds of answers that benchmarks have: how an answer is read from a reply, and compared with the true one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from core.grading.answers import extract_boxed, number_of
from core.grading.grader import Grader, Pair
from core.types import EqualityVerdict

# "math": a value, compared by the grader. "choice": the letter of an option. "text": a text, compared letter by letter
# after what does not matter is removed.
AnswerKind = Literal["math", "choice", "text"]

_COMMAND = re.compile(r"\\[A-Za-z]+")
_LETTER = re.compile(r"(?<![A-Za-z])[A-Z](?![A-Za-z])")
_MARKS = re.compile(r"[`'\"*$]|\\(?:text|texttt|textbf|mathrm)(?![A-Za-z])|[{}]")


def read_answer(kind: AnswerKind, reply: str) -> str | None:
    """The answer in a reply's last `\\boxed{}`; None if there is none, or, for a choice, no letter."""
    answer = extract_boxed(reply)
    return None if answer is None else cleaned(kind, answer)


def cleaned(kind: AnswerKind, answer: str) -> str | None:
    """An answer as it is compared: the option's letter, or a text without what does not matter. None without one.

    A choice is the first capital letter that stands alone, as in `(B)`, `\\text{B}` and `B. 7`. The code that R-Zero
    evaluates with (General-Reasoner's) guesses a letter at random if there is none; here there is no answer then.
    """
    if kind == "math":
        return answer
    if kind == "choice":
        letter = _LETTER.search(_COMMAND.sub(" ", answer))
        return letter[0] if letter else None
    text = " ".join(_MARKS.sub("", answer).split()).strip(" .?").casefold().replace(", ", ",")
    if len(text) > 2 and (text[0], text[-1]) in (("(", ")"), ("[", "]")):
        text = text[1:-1].strip()
    return text or None


def compare_many(kind: AnswerKind, pairs: Sequence[Pair], grader: Grader) -> list[EqualityVerdict]:
    """Whether the two answers of each pair are equal; both are as `cleaned` returns them."""
    if kind == "math":
        return [comparison.verdict for comparison in grader.compare_many(pairs)]
    same_number = ((number := number_of(a)) is not None and number == number_of(b) for a, b in pairs)
    return ["equal" if a == b or same else "unequal" for (a, b), same in zip(pairs, same_number, strict=True)]
