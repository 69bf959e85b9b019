from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crashes import crash_points
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_examples import rollout

from core.processes.faultpoints import FaultPoint, arm
from core.texts.unicode import well_formed
from core.types import Rollout, question_id
from storage.errors import StoreError
from storage.files.texts import RolloutText, TextWriter, read_texts, texts_path

STAGE = "label_questions"


def votes(questions: int, texts: list[str] | None = None) -> list[Rollout]:
    return [
        rollout("demo", index, sample, text=texts[index % len(texts)] if texts else f"{index} and {sample}")
        for index in range(questions)
        for sample in range(2)
    ]


def write(root: Path, batches: list[list[Rollout]]) -> bytes:
    writer = TextWriter(texts_path(root, "demo", 1, STAGE))
    for index, batch in enumerate(batches):
        writer.add(index, batch)
    return writer.finish().read_bytes()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=5))
def test_texts_are_read_back_unchanged_except_for_lone_surrogates(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    root, written = tmp_path_factory.mktemp("texts"), votes(len(texts), texts)
    write(root, [written])
    expected = [RolloutText(vote.question_id, vote.sample_index, well_formed(vote.text)) for vote in written]
    assert read_texts(texts_path(root, "demo", 1, STAGE)) == expected


def test_the_bytes_depend_on_the_rows_and_not_on_the_batches(tmp_path: Path) -> None:
    written = votes(10_000)  # more than two row groups
    whole = write(tmp_path / "whole", [written])
    for size in (999, 8_192, 12_000):
        batches = [written[start : start + size] for start in range(0, len(written), size)]
        assert write(tmp_path / str(size), batches) == whole
    assert len(read_texts(texts_path(tmp_path / "whole", "demo", 1, STAGE))) == len(written)


def test_a_resumed_stage_replaces_the_batch_of_the_interrupted_one(tmp_path: Path) -> None:
    first, second = votes(4)[:4], votes(4)[4:]
    interrupted = TextWriter(texts_path(tmp_path / "resumed", "demo", 1, STAGE))
    interrupted.add(0, first)
    interrupted.add(1, votes(4, ["cut off before its rows were committed"])[4:])
    resumed = TextWriter(texts_path(tmp_path / "resumed", "demo", 1, STAGE))
    resumed.add(1, second)
    assert resumed.finish().read_bytes() == write(tmp_path / "whole", [first, second])


def test_a_writer_that_was_suspended_before_its_rename_does_not_disturb_its_successor(tmp_path: Path) -> None:
    """Both write the same batch: one was suspended and goes on while the other, which has taken over, is writing."""
    path = texts_path(tmp_path, "demo", 1, STAGE)
    suspended, successor = TextWriter(path), TextWriter(path)

    def in_between(name: FaultPoint, _unit: str) -> None:
        if name == "file written":
            arm(None)
            suspended.add(0, votes(2))

    arm(in_between)
    successor.add(0, votes(2))
    assert successor.finish().read_bytes() == write(tmp_path / "alone", [votes(2)])


def test_a_writer_that_was_suspended_while_it_merged_leaves_the_batches_to_its_successor(tmp_path: Path) -> None:
    path, lost = texts_path(tmp_path, "demo", 1, STAGE), list[bool]()

    def refuse_lost() -> None:
        if lost:
            raise StoreError("lost")

    suspended = TextWriter(path, refuse_lost)
    suspended.add(0, votes(2))
    arm(lambda name, _unit: lost.append(True) if name == "file written" else None)
    with pytest.raises(StoreError, match="lost"):
        suspended.finish()
    arm(None)
    assert [*path.with_suffix(".parts").iterdir()]
    assert TextWriter(path).finish().read_bytes() == write(tmp_path / "alone", [votes(2)])


def test_a_finished_file_is_not_changed_by_another_writer(tmp_path: Path) -> None:
    before = write(tmp_path, [votes(2)])
    again = TextWriter(texts_path(tmp_path, "demo", 1, STAGE))
    again.add(0, votes(2, ["other"]))
    assert again.finish().read_bytes() == before
    assert [path.name for path in again.path.parent.iterdir()] == [f"{STAGE}.parquet"]


def test_a_stage_without_texts_has_an_empty_file(tmp_path: Path) -> None:
    write(tmp_path / "none", [])
    write(tmp_path / "empty", [[], []])
    for root in ("none", "empty"):
        assert read_texts(texts_path(tmp_path / root, "demo", 1, STAGE)) == []


def test_the_texts_of_some_questions_can_be_read_alone_in_any_row_group(tmp_path: Path) -> None:
    write(tmp_path, [votes(10_000)])
    assert pq.ParquetFile(texts_path(tmp_path, "demo", 1, STAGE)).num_row_groups == 3
    for index in (0, 4_095, 4_096, 9_999):
        known = [question_id("demo", 1, index), "nobody"]
        chosen = read_texts(texts_path(tmp_path, "demo", 1, STAGE), question_ids=known)
        assert [row.text for row in chosen] == [f"{index} and 0", f"{index} and 1"]
    assert read_texts(texts_path(tmp_path, "demo", 1, STAGE), question_ids=[]) == []


def test_reading_imports_no_pandas(tmp_path: Path) -> None:
    """pandas would cost each of the API's processes 35 MB, and the first request a second."""
    write(tmp_path, [votes(5)])
    program = """
import sys
from pathlib import Path
from storage.files.texts import read_texts, texts_path
assert len(read_texts(texts_path(Path(sys.argv[1]), "demo", 1, sys.argv[2]), ["demo/1/000003"])) == 2
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path), STAGE], check=True)


def test_missing_and_damaged_files_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=rf"{STAGE}\.parquet: "):
        read_texts(texts_path(tmp_path, "demo", 1, STAGE))
    content = write(tmp_path, [votes(5)])
    texts_path(tmp_path, "demo", 1, STAGE).write_bytes(content[:-20])
    with pytest.raises(StoreError, match=rf"{STAGE}\.parquet: "):
        read_texts(texts_path(tmp_path, "demo", 1, STAGE))


def test_texts_are_compressed(tmp_path: Path) -> None:
    assert len(write(tmp_path, [votes(200, ["so the answer is \\boxed{3}. " * 50])])) < 20_000


def test_a_crash_at_any_point_leaves_no_incomplete_texts(tmp_path: Path) -> None:
    assert crash_points("texts", tmp_path) > 15
