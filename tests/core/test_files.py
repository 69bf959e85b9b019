from __future__ import annotations

from pathlib import Path

import pytest

from core.files import make_folder, put, replacing, whole_lines


def test_a_growing_file_is_read_in_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"")
    assert whole_lines(file, 0) == (0, [])
    file.write_bytes(b"one\ntw")
    assert whole_lines(file, 0) == (4, [b"one"])
    file.write_bytes(b"one\ntwo\n\nthree\nfo")
    assert whole_lines(file, 4) == (15, [b"two", b"", b"three"])
    assert whole_lines(file, 15) == (15, [])
    file.write_bytes(b"\nfo")
    assert whole_lines(file, 0) == (1, [])


def test_put_replaces_the_file_that_had_the_name(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    old, new = tmp_path / "a" / "b" / "final", tmp_path / "a" / "b" / "temporary"
    old.write_text("old")
    new.write_text("new")
    put(new, old)
    assert old.read_text() == "new"
    assert not new.exists()


def test_two_writers_of_one_file_have_each_a_temporary_file_and_the_last_one_s_stays(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with replacing(file) as suspended:
        suspended.write_text("of the one that was suspended")
        with replacing(file) as successor:
            successor.write_text("of its successor")
        assert file.read_text() == "of its successor"
    assert file.read_text() == "of the one that was suspended"
    assert [*tmp_path.iterdir()] == [file]


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError), replacing(file) as temporary:
        temporary.write_text("hálf", encoding="ascii")
    assert file.read_text() == "old"
    assert [*tmp_path.iterdir()] == [file]
