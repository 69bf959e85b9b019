"""Data sets as files: every format has the same rows, and the same rows give the same bytes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from crashes import crash_points
from sqlalchemy import text
from store_examples import fresh_run, label, question, rollout

from core.settings.parsing import parse_config
from core.types import LabelledQuestion, OracleLabel
from storage import queries
from storage.errors import StoreError
from storage.exports import rows as export_rows
from storage.exports.files import NotFinal
from storage.exports.runs import FORMATS, Format, export
from storage.exports.selection import Selection
from storage.queries.browse import QuestionFilter
from storage.session import Store

KEPT = QuestionFilter(verdicts=("kept",))
TEXTS = ("=1+2, what is it?", "-5", "+ five", 'He said "3",\nand left', "\0 and \ud800", None)


@pytest.fixture
def run(store: Store) -> str:
    """A run whose questions' texts are difficult for file formats; every second question is kept."""
    run = fresh_run(store)
    questions = [question(run, index, text) for index, text in enumerate(TEXTS)]
    with store.write() as session:
        queries.questions.add_questions(session, questions)
        queries.questions.add_rollouts(session, [rollout(run, 0, 0)])
        kept = [replace(label(run, index), text=TEXTS[index]) for index in (0, 2, 4)]
        easy = [replace(label(run, index), text=TEXTS[index], verdict="too_easy") for index in (1, 3)]
        queries.questions.add_labels(
            session, [*kept, *easy, LabelledQuestion(questions[5].id, None, None, "malformed")]
        )
        queries.ledger.claim_stage(session, run=run, iteration=1, stage="label_questions", owner="me", lease_seconds=60)
        queries.ledger.finish_stage(session, run=run, iteration=1, stage="label_questions", owner="me", result={})
    return run


def read(path: Path, kind: Format) -> list[dict[str, Any]]:
    if kind == "jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if kind == "csv":
        return list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
    if kind == "huggingface":
        with zipfile.ZipFile(path) as archive:
            path = Path(archive.extract("data/train.parquet", path.parent))
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_has_all_rows(store: Store, run: str, tmp_path: Path, kind: Format, monkeypatch: Any) -> None:
    monkeypatch.setattr(export_rows, "_QUESTIONS", 2)
    exported = export(store, tmp_path, Selection(run, "1"), kind)
    rows = read(exported.path, kind)
    assert [int(row["index"]) for row in rows] == list(range(len(TEXTS)))
    expected = [text and text.replace("\0", "\ufffd").replace("\ud800", "\ufffd") for text in TEXTS]
    if kind == "csv":  # formulas are escaped, numbers are not; a missing text is empty
        expected = ["'=1+2, what is it?", "-5", "'+ five", *expected[3:5], ""]
    assert [row["text"] for row in rows] == expected
    assert [float(row["p_hat"]) for row in rows[:5]] == [0.6] * 5
    assert exported.manifest["rows"] == len(TEXTS)
    assert exported.manifest["verdicts"] == {"kept": 3, "too_easy": 2, "malformed": 1}
    assert exported.manifest["asked_by"].keys() == exported.manifest["voted_by"].keys() == {f"{run}/base/0"}
    again = export(store, tmp_path / "elsewhere", Selection(run, "1"), kind)
    assert again.path.read_bytes() == exported.path.read_bytes()
    assert again.manifest == exported.manifest
    kept = export(store, tmp_path, Selection(run, "1", filters=KEPT), kind)
    assert [int(row["index"]) for row in read(kept.path, kind)] == [0, 2, 4]


@pytest.mark.parametrize(
    "formula",
    ["=1+2", "\n=1+2", "\uff1d1+2", " \ufeff\x0b@SUM(1)", "\t1", "\uff0bx", "\u3000-x", "\uff20a", "\r\n+x"],
)
def test_a_csv_file_has_no_formula_for_a_spreadsheet(store: Store, run: str, tmp_path: Path, formula: str) -> None:
    with store.write() as session:
        session.execute(text("UPDATE questions SET text = :formula"), {"formula": formula})
    exported = export(store, tmp_path, Selection(run, "1", filters=KEPT), "csv")
    with exported.path.open(encoding="utf-8", newline="") as file:
        assert {row["text"] for row in csv.DictReader(file)} == {f"'{formula}"}


def test_a_hugging_face_archive_has_a_manifest_and_a_card_that_describe_it(
    store: Store, run: str, tmp_path: Path
) -> None:
    exported = export(store, tmp_path, Selection(run, "1"), "huggingface")
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(exported.path) as archive:
        archive.extractall(folder)
    manifest, card = json.loads((folder / "manifest.json").read_text()), (folder / "README.md").read_text()
    rows = hashlib.sha256((folder / "data" / "train.parquet").read_bytes()).hexdigest()
    assert manifest["files"] == {"data/train.parquet": rows}
    same = (
        "run",
        "iterations",
        "filters",
        "format",
        "schema_version",
        "columns",
        "rows",
        "verdicts",
        "audited",
        "asked_by",
        "voted_by",
    )
    assert {name: manifest[name] for name in same} == {name: exported.manifest[name] for name in same}
    assert {**manifest["config"], "iterations": exported.manifest["config"]["iterations"]} == exported.manifest[
        "config"
    ]
    assert "- questions: 6 (3 kept, 1 malformed, 2 too_easy), not filtered" in card
    assert f"- voted on by: `{run}/base/0` (sha256 sha of {run}/base/0)" in card
    assert f"sha256 {rows}" in card
    assert "The oracles' verdicts" not in card  # no oracle has graded any
    with store.write() as session:
        config = parse_config(exported.manifest["config"], "test")
        queries.runs.set_limits(session, run, config.model_copy(update={"iterations": config.iterations + 1}))
    longer = export(store, tmp_path / "longer", Selection(run, "1"), "huggingface")
    assert longer.path.read_bytes() == exported.path.read_bytes()


def test_a_card_names_the_columns_with_the_oracles_verdicts(store: Store, run: str, tmp_path: Path) -> None:
    with store.write() as session:
        labels = [OracleLabel(f"{run}/1/000000", oracle, "right", "3") for oracle in ("exact", "human")]
        queries.questions.add_oracle_labels(session, labels)
    exported = export(store, tmp_path, Selection(run, "1"), "huggingface")
    with zipfile.ZipFile(exported.path) as archive:
        card = archive.read("README.md").decode()
    assert "The oracles' verdicts are in the columns `exact_verdict`, `human_verdict`." in card


def test_datasets_loads_the_rows_and_nothing_else(store: Store, run: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    from datasets import load_dataset

    exported = export(store, tmp_path, Selection(run, "1"), "huggingface")
    with zipfile.ZipFile(exported.path) as archive:
        archive.extractall(tmp_path / "unpacked")
    loaded = load_dataset(str(tmp_path / "unpacked"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    assert list(loaded["train"]) == read(exported.path, "huggingface")


@pytest.mark.parametrize("kind", FORMATS)
def test_lone_surrogates_and_null_characters_in_an_oracle_s_truth_are_replaced(
    store: Store, run: str, tmp_path: Path, kind: Format
) -> None:
    with store.write() as session:
        audited = [OracleLabel(f"{run}/1/{index:06d}", "judge", "wrong", "2\ud83d\0") for index in (0, 2)]
        queries.questions.add_oracle_labels(session, audited)
    exported = export(store, tmp_path, Selection(run, "1", filters=KEPT), kind)
    missing = "" if kind == "csv" else None
    assert [(row["judge_verdict"], row["judge_truth"]) for row in read(exported.path, kind)] == [
        ("wrong", "2\ufffd\ufffd"),
        ("wrong", "2\ufffd\ufffd"),
        (missing, missing),
    ]
    assert exported.manifest["audited"] == {"judge": 2}


def test_a_later_audit_makes_another_file(store: Store, run: str, tmp_path: Path) -> None:
    before = export(store, tmp_path, Selection(run, "1"), "jsonl")
    assert export(store, tmp_path, Selection(run, "1"), "jsonl").path == before.path
    with store.write() as session:
        queries.questions.add_oracle_labels(session, [OracleLabel(f"{run}/1/000002", "exact", "wrong", "8")])
    after = export(store, tmp_path, Selection(run, "1"), "jsonl")
    assert after.path != before.path
    rows = read(after.path, "jsonl")
    assert [(row["index"], row["exact_truth"]) for row in rows if row["exact_verdict"] == "wrong"] == [(2, "8")]
    assert "exact_verdict" not in read(before.path, "jsonl")[0]
    assert (before.manifest["audited"], after.manifest["audited"]) == ({}, {"exact": 1})


def test_prompts_without_a_vote_are_final_when_all_are_read_and_have_verdicts(store: Store, tmp_path: Path) -> None:
    """`read_prompts` stores their verdicts; if the prompts are to be voted on, it stores none."""
    run = fresh_run(store)
    questions = [replace(question(run, index), checkpoint=None) for index in range(2)]
    stage = {"run": run, "iteration": 1, "stage": "read_prompts", "owner": "me"}
    with store.write() as session:
        queries.ledger.claim_stage(session, **stage, lease_seconds=60)
        queries.questions.add_questions(session, questions)
        queries.questions.add_labels(session, [LabelledQuestion(questions[0].id, questions[0].text, None, "kept")])
    with pytest.raises(NotFinal):
        export(store, tmp_path, Selection(run, "1"), "jsonl")
    with store.write() as session:
        queries.ledger.finish_stage(session, **stage, result={})
    with pytest.raises(NotFinal):
        export(store, tmp_path, Selection(run, "1"), "jsonl")
    with store.write() as session:
        queries.questions.add_labels(session, [LabelledQuestion(questions[1].id, questions[1].text, None, "malformed")])
    exported = export(store, tmp_path, Selection(run, "1"), "jsonl")
    assert [row["verdict"] for row in read(exported.path, "jsonl")] == ["kept", "malformed"]
    assert (exported.manifest["asked_by"], exported.manifest["voted_by"]) == ({}, {})
    with store.write() as session:
        queries.ledger.claim_stage(session, **{**stage, "stage": "label_questions"}, lease_seconds=60)
    with pytest.raises(NotFinal):
        export(store, tmp_path, Selection(run, "1"), "jsonl")


def test_rows_that_may_still_change_are_not_exported(store: Store, run: str, tmp_path: Path) -> None:
    with pytest.raises(NotFinal, match="iteration 2: its questions are not all labelled yet"):
        export(store, tmp_path, Selection(run, "2"), "csv")
    assert list(tmp_path.rglob("*.csv")) == []


def test_an_export_that_is_killed_at_any_point_is_absent_or_whole_and_the_next_one_completes_it(tmp_path: Path) -> None:
    assert crash_points("exports", tmp_path) > 10


def test_an_export_ends_with_the_server_and_leaves_no_file(store: Store, run: str, tmp_path: Path) -> None:
    """The process could not end before the last of a million rows was written."""
    with pytest.raises(StoreError):
        export(store, tmp_path, Selection(run, "1"), "jsonl", is_ending=lambda: True)
    assert [path for path in tmp_path.rglob("*.jsonl*") if path.is_file()] == []
    assert export(store, tmp_path, Selection(run, "1"), "jsonl").path.exists()
