"""`coevo verify` names each file that is missing or has changed, and each reference to nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from core.types import evaluation_id
from orchestrator.installation.home import Home
from orchestrator.verification.checks import Verification, Violation
from orchestrator.verification.run import verify_run
from storage import queries
from storage.texts import RolloutText, TextWriter, read_texts
from tests.orchestrator.stored_runs import RUN, copy_of


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def rewrite(change: Callable[[list[RolloutText]], list[RolloutText]]) -> Callable[[Path], None]:
    """Write a file of texts anew with other rows."""

    def rewritten(path: Path) -> None:
        rows = read_texts(path)
        path.unlink()
        writer = TextWriter(path)
        writer.add(0, change(rows))
        writer.finish()

    return rewritten


def violations(verification: Verification) -> dict[str, list[Violation]]:
    return {check.name: check.violations for check in verification.checks if check.violations}


SOLVER, VOTES = "checkpoints/whole/solver/2", "texts/whole/1/label_questions.parquet"
FILES = "files of whole/solver/2"
# What is damaged, how -> the check that finds it, and parts of the row that it names and of what it says is stored.
PLANTED: dict[str, tuple[str, Callable[[Path], None], str, str, str]] = {
    "a flipped bit": (f"{SOLVER}/model.safetensors", flip_bit, "checkpoints", FILES, "has changed"),
    "a missing file": (f"{SOLVER}/config.json", Path.unlink, "checkpoints", FILES, "is missing"),
    "a changed manifest": (
        f"{SOLVER}/manifest.json",
        truncate,
        "checkpoints",
        "files of whole/solver/2",
        "is not JSON",
    ),
    "a truncated file of texts": (VOTES, truncate, "texts", VOTES, "cannot be read"),
    "no file of texts": (
        "texts/whole/2/train_labelled.parquet",
        Path.unlink,
        "texts",
        "train_labelled",
        "no such file",
    ),
    "a missing text": (VOTES, rewrite(lambda rows: rows[1:]), "texts", "whole/1/000000, sample 0", "none"),
    "a text of nothing": (
        "texts/whole/1/train_solver.parquet",
        rewrite(lambda rows: [*rows, RolloutText("000009/000000", 0, "")]),
        "texts",
        "000009/000000, sample 0",
        "one",
    ),
    "a text twice": (VOTES, rewrite(lambda rows: [*rows, rows[0]]), "texts", "whole/1/000000, sample 0", "several"),
    "another text": (
        VOTES,
        rewrite(lambda rows: [rows[0]._replace(text="\\boxed{8}"), *rows[1:]]),
        "texts",
        "whole/1/000000, sample 0: answer",
        "'3'",
    ),
    "a truncated file of an evaluation": (
        f"texts/_evaluations/{evaluation_id('whole/base/0', 'BENCHMARK')}.parquet",
        truncate,
        "texts",
        "_evaluations",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_each_damaged_file_is_named(loop_home: Home, tmp_path: Path, what: str) -> None:
    home, store = copy_of(loop_home, tmp_path)
    name, damage, check, row, stored = PLANTED[what]
    benchmark = str(loop_home.path / "benchmark.jsonl")
    key = evaluation_id("whole/base/0", "BENCHMARK")
    damage(home.path / name.replace(key, evaluation_id("whole/base/0", benchmark)))
    [violation] = violations(verify_run(home, store, RUN)).pop(check)
    assert row in violation.row
    assert stored in violation.stored


def test_quick_reads_manifests_only(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path)
    flip_bit(home.path / SOLVER / "model.safetensors")
    assert violations(verify_run(home, store, RUN, quick=True)) == {}
    manifest = home.path / SOLVER / "manifest.json"
    manifest.write_text(manifest.read_text().replace("config.json", "other.json"))
    [violation] = violations(verify_run(home, store, RUN, quick=True))["checkpoints"]
    assert violation.row == "whole/solver/2: sha256 of its manifest"


def test_files_that_were_removed_on_purpose_are_not_missing(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path)
    with store.write() as session:
        queries.checkpoints.note_removed(session, ["whole/solver/2", "whole/challenger/1"])
    shutil.rmtree(home.checkpoints / RUN / "challenger" / "1")
    verification = verify_run(home, store, RUN)
    assert violations(verification) == {}
    notes = {check.name: check.notes for check in verification.checks}
    assert notes["checkpoints"] == ["the files of 2 checkpoints were removed, as checkpoints.keep says"]
    [left_over] = notes["left over"]  # its row says that its files are removed, but they are there
    assert left_over.startswith(f"{home.path / SOLVER}: no row refers to its files")


def test_the_moments_of_the_last_round_are_unchanged_and_there_while_a_round_may_follow(
    rounds_home: Home, tmp_path: Path
) -> None:
    home, store = copy_of(rounds_home, tmp_path)
    moments = home.optimisers / RUN / "solver" / "2"
    flip_bit(moments / "model.safetensors")
    [violation] = violations(verify_run(home, store, RUN))["optimiser's moments"]
    assert violation.row == "files of moments of whole/solver/2"
    moments.rename(tmp_path / "elsewhere")
    [violation] = violations(verify_run(home, store, RUN))["optimiser's moments"]
    assert violation == Violation("moments of whole/solver/2", f"a folder {moments}", "nothing")
    with store.write() as session:
        queries.runs.set_run_status(session, RUN, "stopped")
    assert violations(verify_run(home, store, RUN)) == {}


def test_rows_that_refer_to_nothing_are_named(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path)
    with sqlite3.connect(home.path / "coevo.db") as connection:  # without foreign keys, as when a file is damaged
        connection.execute("DELETE FROM checkpoints WHERE id = 'whole/solver/1'")
        connection.execute("DELETE FROM questions WHERE id = 'whole/2/000004'")
    named = violations(verify_run(home, store, RUN))
    missing = {(violation.row, violation.expected) for violation in named["references"]}
    assert ("checkpoints whole/solver/2: parent", "whole/solver/1 in checkpoints") in missing
    assert ("rollouts whole/2/000004 0: question_id", "whole/2/000004 in questions") in missing
    [begun] = [row for row in named["trained checkpoints"] if row.row == "whole/solver/1: parent"]
    assert begun.stored == "nothing"
