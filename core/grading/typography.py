"""The second layer of reading an answer: typography. What changes only how an answer looks is removed.

Fonts, colours, sizes and spaces go, and commands with one meaning get one name. What stands in `\\text{}` stays there,
because letters in it are words or units and letters outside are symbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from core.grading.markup import without_markup
from core.grading.typography_tables import (
    ALPHABETS,
    BLACKBOARD,
    DROPPED,
    DROPPED_WITH_ARGUMENTS,
    ENVIRONMENTS,
    FUNCTIONS,
    RENAMED,
    TEXTS,
    UNWRAPPED,
)

_TOKEN = re.compile(r"\\(?:[A-Za-z]+\*?|.|\Z)|[{}$]|[^\\{}$]+", re.DOTALL)
_WORD = r"[^\W\d_]+"
_WORDS = re.compile(rf"{_WORD}(?:(?:\. ?|[ '-]){_WORD})*\.?")
_ROW_HEIGHT = re.compile(r"\s?\[[0-9.]{1,9} ?(?:pt|em|ex|mm|cm)\]")
_OPTION = re.compile(r"\s*\[([^\[\]]*)\]")
_COLUMNS = re.compile(r"[clr|@ ]*")
_BLANKS = re.compile(r"[\s~]+")
_DIGITS = re.compile(r"-?[0-9]+")
_NEEDS_GROUPING = re.compile(r"^\s*[0-9]|[+/-]")
_CURRENCIES = (r"\$", r"\euro", r"\pounds")
NARROW = "\u00a0"  # stands for a narrow space, which may set off thousands
_TAKES = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1, r"\overline": 1, r"\dot": 1, r"\hat": 1, r"\vec": 1, r"\tilde": 1}


def typeset(text: str) -> str:
    """The LaTeX of an answer without what is typography alone. Words stand in `\\text{}`, without spaces around."""
    return _Typesetter(without_markup(text)).read()


class _Brace(NamedTuple):
    """An open brace: what closes it, and the state of the typesetter that returns afterwards."""

    closing: str
    words: bool
    arguments: int
    belongs: bool
    opened_words: bool


class _Typesetter:
    """Reads the tokens of a text once, and writes pieces of mathematics and of words."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(text)
        self._closing: dict[int, int] = {}  # the index of each opening brace that closes -> that of its closing brace
        opened: list[int] = []
        for i, mark in enumerate(self._tokens):
            if mark == "{":
                opened.append(i)
            elif mark == "}" and opened:
                self._closing[opened.pop()] = i
        self._pieces: list[tuple[bool, str]] = []  # whether it is words, and the piece
        self._open: list[_Brace] = []
        self._words = False  # inside of \text{}
        self._arguments = 0  # that the command before still takes
        self._digits = False  # whether such an argument is a whole number rather than one digit, as in `x^10`
        self._belongs = False  # whether the next brace belongs to an unknown command
        self._unwrap = False  # whether the next brace is dropped
        self._into_words = False  # whether the next brace opens words
        self._environments = 0
        self._aligned = 0  # environments in which `&` lines up equations

    def read(self) -> str:
        i = 0
        while i < len(self._tokens):
            mark = self._tokens[i]
            i += 1
            if not mark:
                continue
            if mark == "{":
                self._open_brace(i - 1)
            elif mark == "}":
                self._close_brace()
            elif mark == "$":
                self._words = not self._words and any(brace.opened_words for brace in self._open)
            elif mark[0] == "\\":
                i = self._command(mark, i)
            elif self._words:
                self._pieces.append((True, mark))
            else:
                self._plain(mark)
        return self._joined()

    def _open_brace(self, i: int) -> None:
        opening, closing = ("{", "}") if self._arguments or (self._belongs and not self._unwrap) else self._group(i)
        self._open.append(_Brace(closing, self._words, max(0, self._arguments - 1), self._belongs, self._into_words))
        self._write(opening)
        self._words = self._words or self._into_words
        self._unwrap = self._into_words = self._belongs = False
        self._arguments = 0

    def _group(self, i: int) -> tuple[str, str]:
        """What to write for the braces of a group that is no argument: nothing, unless it would change the value."""
        end = self._closing.get(i)
        if end is None:
            return "{", "}"
        content = self._tokens[i + 1 : end]
        if self._unwrap or self._words:
            return "", ""
        if any(token in (r"\over", r"\choose") for token in content) or any("," in token for token in content):
            return "{", "}"
        alone = i == 0 and end == len(self._tokens) - 1
        return ("(", ")") if not alone and _NEEDS_GROUPING.search("".join(content)) else ("", "")

    def _close_brace(self) -> None:
        if not self._open:
            self._write("}")
            return
        brace = self._open.pop()
        self._words, self._arguments, self._belongs = brace.words, brace.arguments, brace.belongs
        self._write(brace.closing)

    def _plain(self, text: str) -> None:
        text = text.replace("~", NARROW)
        if text.strip():
            self._belongs = self._unwrap = self._into_words = False
        if "&" in text and not self._environments:
            text = text.replace("&", "" if self._aligned else r" \text{and} ")
        while self._arguments and text.strip():
            text = text.lstrip()
            if text[0] in "^_":
                break
            digits = _DIGITS.match(text) if self._digits else None
            length = digits.end() if digits else 1
            self._write(f"{{{text[:length]}}}")
            text = text[length:]
            self._arguments -= 1
        if text.rstrip()[-1:] in ("^", "_"):
            self._arguments, self._digits = 1, True
        self._write(text)

    def _command(self, command: str, i: int) -> int:
        """Write a command, or what stands for it; the index of the next token."""
        command = RENAMED.get(command, command)
        name = command if command == r"\\" else command.rstrip("*")
        if (special := self._special.get(name)) is not None:
            return special(self, name, i)
        if name in DROPPED:
            if name in (r"\left", r"\right", r"\middle") and self._next(i).startswith("."):
                self._tokens[i] = self._tokens[i][1:]
        elif name in DROPPED_WITH_ARGUMENTS:
            i = self._drop_arguments(name, i)
        elif name in TEXTS or name in ALPHABETS or name in UNWRAPPED:
            i = self._font(name, i)
        elif self._words and (not command.startswith("\\") or command in _CURRENCIES):
            self._pieces.append((True, command))
        elif self._arguments and command.startswith("\\") and name not in _TAKES:
            self._write(f"{{{command}}}")
            self._arguments -= 1
        else:
            self._symbol(command, i)
        return i

    def _symbol(self, command: str, i: int) -> None:
        """Write a command that has a meaning, and note how many arguments it takes."""
        self._write(command)
        self._belongs = command[-1:].isalpha() and command not in _TAKES
        if command not in _TAKES:
            return
        if command == r"\sqrt" and (option := _OPTION.match(self._next(i))):
            self._write(option[0].strip())
            self._tokens[i] = self._tokens[i][option.end() :]
        if not self._next(i).lstrip().startswith("("):
            self._arguments, self._digits = _TAKES[command], command == r"\sqrt"

    def _drop_arguments(self, name: str, i: int) -> int:
        dropped, wraps = DROPPED_WITH_ARGUMENTS[name]
        if option := _OPTION.match(self._next(i)):
            self._tokens[i] = self._tokens[i][option.end() :]
            i += not self._tokens[i]
        for _ in range(dropped):
            i = self._after_argument(i)
        self._unwrap = wraps or (name == r"\color" and self._next(i) == "{")
        return i

    def _font(self, name: str, i: int) -> int:
        if self._next(i).isspace() and i + 1 < len(self._tokens):
            i += 1
        if self._next(i) == "{":
            self._unwrap = True
            self._into_words = name in TEXTS and not self._words
        return i

    def _new_row(self, _name: str, i: int) -> int:
        following = self._next(i)
        if self._environments:
            self._write(r"\\")
            if height := _ROW_HEIGHT.match(following):
                self._tokens[i] = following[height.end() :] or " "
        elif following.strip():
            self._write(r" \text{and} ")
        return i

    def _environment(self, command: str, i: int) -> int:
        name, after = self._argument(i)
        name = ENVIRONMENTS.get(name.rstrip("*"), name)
        change = 1 if command == r"\begin" else -1
        self._aligned += change if name == "&" else 0
        if name.isalpha():
            self._write(rf"{command}{{{name}}}")
            self._environments += change
        if command == r"\begin" and name == "matrix" and self._next(after) == "{":
            columns, rest = self._argument(after)
            after = rest if _COLUMNS.fullmatch(columns) else after
        return after

    def _blackboard(self, _name: str, i: int) -> int:
        letter, after = self._argument(i)
        bare = self._next(i).lstrip()
        if bare[:1] in BLACKBOARD and not bare[1:2].isalpha():
            self._tokens[i] = bare[1:]
            self._write(rf"\mathbb{{{bare[0]}}}")
            return i
        if letter in BLACKBOARD:
            self._write(rf"\mathbb{{{letter}}}")
            return after
        self._unwrap = self._next(i) == "{"
        return i

    _special: ClassVar[dict[str, Callable[[_Typesetter, str, int], int]]] = {
        r"\\": _new_row,
        r"\begin": _environment,
        r"\end": _environment,
        r"\mathbb": _blackboard,
    }

    def _argument(self, i: int) -> tuple[str, int]:
        """The text of the argument at a token, and the index of the token after it."""
        end = self._after_argument(i)
        return "".join(self._tokens[i:end]).strip(" {}"), end

    def _after_argument(self, i: int) -> int:
        while self._next(i).isspace():
            i += 1
        return self._closing[i] + 1 if i in self._closing else i + (self._next(i)[:1] == "\\" or self._next(i) == "{")

    def _next(self, i: int) -> str:
        return self._tokens[i] if i < len(self._tokens) else ""

    def _write(self, text: str) -> None:
        self._pieces.append((False, text))

    def _joined(self) -> str:
        """All pieces, with the words in `\\text{}`, and a space where a command would else run into a letter."""
        written: list[str] = []
        words = ""
        for is_words, piece in [*self._pieces, (False, "")]:
            if is_words:
                words += piece
                continue
            if words:
                written.append(_WORDS.sub(_phrase, _BLANKS.sub(" ", words)))
                words = ""
            written.append(piece)
        text = ""
        parts: list[str] = []
        for piece in written:
            if piece and piece[0].isalpha() and text[-1:].isalpha() and re.search(r"\\[A-Za-z]+$", text[-30:]):
                parts.append(" ")
            parts.append(piece)
            text = piece or text
        return "".join(parts)


def _phrase(words: re.Match[str]) -> str:
    phrase = " ".join(words[0].rstrip(".").split())
    return rf"\{phrase} " if phrase in FUNCTIONS - {"sec", "min"} else rf"\text{{{phrase}}}"
