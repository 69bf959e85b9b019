"""Tags and notes of runs."""

from __future__ import annotations

import pytest
from store_examples import reads, writes

from storage import queries
from storage.errors import NotThere, StoreError
from storage.rows import TagCount
from storage.session import Store

ODD = "a\nb\0 <b>\u202e"


def test_tags_and_note_are_kept_with_who_changed_them_last(store: Store, run: str) -> None:
    before = writes(store).runs.get_run(run)
    first = writes(store).run_notes.annotate(run, add=["b", "a"], note=ODD, by="ann")
    assert writes(store).run_notes.annotate(run, add=["a"], note=ODD, by="bob") == first
    second = writes(store).run_notes.annotate(run, add=["c"], remove=["a", "never-there"])
    assert (before.tags, before.note, before.noted_by, before.noted_at) == ([], "", None, None)
    assert (first.tags, first.note, first.noted_by) == (["a", "b"], ODD, "ann")
    assert (second.tags, second.note, second.noted_by) == (["b", "c"], ODD, None)
    assert first.noted_at is not None
    assert first.noted_at.utcoffset() is not None
    assert (second.updated_at, second.config) == (before.updated_at, before.config)
    assert reads(store).runs.get_run(run) == second
    assert reads(store).run_notes.tags_in_use() == [TagCount("b", 1), TagCount("c", 1)]


@pytest.mark.parametrize("tag", ["", "Upper", "-a", "a b", 'a"b', "a%", "x" * 41])
def test_a_tag_of_other_characters_is_refused(store: Store, run: str, tag: str) -> None:
    with store.write() as session, pytest.raises(StoreError, match=r"^tag: .* 40"):
        queries.run_notes.annotate(session, run, add=["fine", tag])
    assert reads(store).runs.get_run(run).tags == []


def test_tags_and_note_are_bounded(store: Store, run: str) -> None:
    with store.write() as session:
        queries.run_notes.annotate(session, run, add=[f"t{i}" for i in range(20)], note="x" * 4_000)
        with pytest.raises(StoreError, match=r"tags: .* 20"):
            queries.run_notes.annotate(session, run, add=["more"])
        with pytest.raises(StoreError, match=r"note: .*4,000"):
            queries.run_notes.annotate(session, run, note="x" * 4_001)
        with pytest.raises(NotThere, match=r"^run nobody: "):
            queries.run_notes.annotate(session, "nobody", note="")
