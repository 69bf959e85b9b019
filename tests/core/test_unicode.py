"""Any text and any JSON become well-formed Unicode."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.texts.unicode import from_json, to_json, well_formed

any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_only_lone_surrogates_are_replaced(text: str) -> None:
    replaced = well_formed(text)
    assert replaced.encode().decode() == replaced
    assert replaced == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


@given(st.recursive(any_text | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(any_text, v)))
def test_json_in_either_spelling_gives_well_formed_texts(value: object) -> None:
    escaped, written = json.dumps(value), to_json(value)
    assert from_json(escaped) == from_json(written.encode()) == json.loads(written)
    assert json.dumps(from_json(escaped), ensure_ascii=False).encode()


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert from_json(r'["\ud83d\ude00", "\\ud83d", "\ud83d"]') == ["\U0001f600", r"\ud83d", "\ufffd"]


@pytest.mark.parametrize("text", ["", "{", b"[1", "[" * 100_000, '{"a":' * 100_000 + "1", "9" * 4_301])
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        from_json(text)
