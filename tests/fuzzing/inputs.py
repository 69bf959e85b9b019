"""Strategies for hostile input: fragments of the real format, broken, repeated and mixed with arbitrary characters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_LONGEST = 100_000
_ANY_CHARACTER = st.characters(exclude_categories=())  # lone surrogates too
_TIMES = (1, 1, 1, 1, 2, 40, 3_000)

_EVERYWHERE = ("\0", "\x1b[2J", "\u202e", "\ud83d", "\U0001f600", "\u2028", "<script>alert(1)</script>", "{x}", "%s")
_ANSWERS = (
    *("\\boxed{", "}", "{", "\\frac{1}{2}", "\\frac", "\\sqrt{", "\\left(", "\\right)", "^", "_", "\\text{ cm}", "$"),
    *("7", "-", "+", ",", "(", ")", "[", "]", "\\{", "\\}", "x", "=", "\\in", "\\pm", "\\%", "^\\circ", " ", "\n", "!"),
    *("9" * 400, "10^{10^{10}}", "9**9**9", "1e999", "0.\\overline{3}", "1/0", "(x,y)\\mid y=x^2", "yes"),
    *("\\cup", "\\infty", "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\sum_{n=1}^{9}", "\\log_{", "abc", "(B)"),
)
_QUESTIONS = (
    *("<question>", "</question>", "What is 3 + 4?", "There are 3 boxes with 4 balls each. How many balls are there?"),
    *("Anna has 3 apples, finds 4", ". How many apples does Anna have?", "\\boxed{7}", "<|im_end|>", "<|", "|>", "{"),
    *("System: ", "\n\n", "Compute ", " * ", "999999999"),
)
_REPLIES = (
    *("\\boxed{ill-posed}", "\\boxed{", "}", "Yes", "No.", "**", "```json", "```", "\n", '{"1": ', '{"cluster_id": 1}'),
    *('"2": ', ", ", "[", "{", '"chain_of_thought": "x"', "100", "-1", "NaN", "9" * 5_000),
)
_TOML_VALUES = (
    *("true", "-1", "0", "3", "1e400", "nan", "inf", "''", '"x"', '"none"', "[]", "[[1]]", "{}", "2020-01-01", "0x"),
    *('"\\u0000"', '"\\ud83d"', "9" * 5_000, "[" * 2_000, "{a=" * 2_000, '"../../etc/passwd"', '"/dev/zero"', "\x00"),
)


def text(*fragments: str) -> SearchStrategy[str]:
    """A text of these fragments and arbitrary characters, each of them perhaps repeated."""
    part = st.sampled_from((*fragments, *_EVERYWHERE)) | st.text(_ANY_CHARACTER, max_size=20)
    repeated = st.builds(lambda once, times: once * times, part, st.sampled_from(_TIMES))
    return st.lists(repeated, max_size=14).map(lambda parts: "".join(parts)[:_LONGEST])


answers = text(*_ANSWERS)
questions = text(*_QUESTIONS)
replies = text(*_REPLIES, *_ANSWERS)


def json_values(*names: str) -> SearchStrategy[Any]:
    """Values of JSON. Objects have these names, and others."""
    deep = st.sampled_from((30, 300, 900)).map(_nested)
    leaves = (
        deep
        | st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | text(*names)
        | st.sampled_from((2**31, -(2**63)))
    )
    keys = st.sampled_from(names) | st.text(max_size=8) if names else st.text(max_size=8)
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5))


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def changed_toml(draw: st.DrawFn, files: list[Path]) -> bytes:
    """One of these files, with some lines changed."""
    lines = draw(st.sampled_from(files)).read_text().splitlines()
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(lines) - 1))
        name = lines[number].partition("=")[0]
        changes = (
            st.sampled_from(_TOML_VALUES).map(lambda value, name=name: f"{name}= {value}"),
            st.builds(lambda key, value: f"{key} = {value}", text("seed", "."), st.sampled_from(_TOML_VALUES)),
            text("[", "]", "[[", "=", '"""', "#", "solver", "."),
            st.sampled_from(lines),
            st.just(""),
        )
        lines[number] = draw(st.one_of(changes))
    content = "\n".join(lines).encode(errors="surrogatepass")
    return content[: draw(st.sampled_from((len(content), len(content) // 2)))]


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with some bytes changed, a part of it removed or repeated, or its end cut off."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        kind = draw(st.sampled_from(("flip", "insert", "remove", "repeat", "cut")))
        if kind == "flip" and changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "insert":
            changed[at:at] = draw(st.binary(max_size=20) | st.sampled_from((b"\xff", b"[" * 9_000, b"9" * 5_000)))
        elif kind == "remove":
            del changed[at : at + draw(st.integers(1, 64))]
        elif kind == "repeat":
            changed[at:at] = changed[at : at + draw(st.integers(1, 64))] * draw(st.sampled_from((1, 50)))
        elif draw(st.integers(0, 3)) == 0:
            del changed[at:]
    return bytes(changed)
