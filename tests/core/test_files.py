from __future__ import annotations

from pathlib import Path

from core.files import make_folder, put, whole_lines


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
