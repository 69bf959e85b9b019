"""The messages that people read are those of messages.txt."""

from __future__ import annotations

from pathlib import Path

from tests.messages import FILE, messages


def test_every_message_is_the_one_in_the_file(tmp_path: Path) -> None:
    """If a new sentence is meant, `python -m tests.messages` writes the file anew, and its diff is there to be read."""
    assert messages(tmp_path).splitlines() == FILE.read_text(encoding="utf-8").splitlines()
