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
from store_examples import end_stage, fresh_run, label, question, rollout, writes

from core.settings.parsing import parse_config
from core.types import LabelledQuestion, OracleLabel
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
    writes(store).questions.add_questions(questions)
    writes(store).questions.add_rollouts([rollout(run, 0, 0)])
    kept = [replace(label(run, index), text=TEXTS[index]) for index in (0, 2, 4)]
    easy = [replace(label(run, index), text=TEXTS[index], verdict="too_easy") for index in (1, 3)]
    writes(store).questions.add_labels([*kept, *easy, LabelledQuestion(questions[5].id, None, None, "malformed")])
    end_stage(store, run)
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


def test_datasets_loads_a_hugging_face_archive_and_its_manifest_and_card_describe_it(
    store: Store, run: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    from datasets import load_dataset

    exported = export(store, tmp_path, Selection(run, "1"), "huggingface")
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(exported.path) as archive:
        archive.extractall(folder)
    manifest, card = json.loads((folder / "manifest.json").read_text()), (folder / "README.md").read_text()
    rows = hashlib.sha256((folder / "data" / "train.parquet").read_bytes()).hexdigest()
    assert manifest["files"] == {"data/train.parquet": rows}
    same = ("run", "iterations", "filters", "format", "schema_version", "columns", "rows", "verdicts")
    for name in (*same, "audited", "asked_by", "voted_by"):
        assert manifest[name] == exported.manifest[name], name
    stored = exported.manifest["config"]
    assert {**manifest["config"], "iterations": stored["iterations"]} == stored
    assert "- questions: 6 (3 kept, 1 malformed, 2 too_easy), not filtered" in card
    assert f"- voted on by: `{run}/base/0` (sha256 sha of {run}/base/0)" in card
    assert f"sha256 {rows}" in card
    assert "The oracles' verdicts" not in card  # no oracle has graded any
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    assert list(loaded["train"]) == read(exported.path, "huggingface")
    config = parse_config(stored, "test")
    writes(store).runs.set_limits(run, config.model_copy(update={"iterations": config.iterations + 1}))
    longer = export(store, tmp_path / "longer", Selection(run, "1"), "huggingface")
    assert longer.path.read_bytes() == exported.path.read_bytes()
    labels = [OracleLabel(f"{run}/1/000000", oracle, "right", "3") for oracle in ("exact", "human")]
    writes(store).questions.add_oracle_labels(labels)
    with zipfile.ZipFile(export(store, tmp_path, Selection(run, "1"), "huggingface").path) as archive:
        assert "`exact_verdict`, `human_verdict`" in archive.read("README.md").decode()


@pytest.mark.parametrize("kind", FORMATS)
def test_lone_surrogates_and_null_characters_in_an_oracle_s_truth_are_replaced(
    store: Store, run: str, tmp_path: Path, kind: Format
) -> None:
    audited = [OracleLabel(f"{run}/1/{index:06d}", "judge", "wrong", "2\ud83d\0") for index in (0, 2)]
    writes(store).questions.add_oracle_labels(audited)
    exported = export(store, tmp_path, Selection(run, "1", filters=KEPT), kind)
    graded, missing = ("wrong", "2\ufffd\ufffd"), "" if kind == "csv" else None
    rows = read(exported.path, kind)
    assert [(row["judge_verdict"], row["judge_truth"]) for row in rows] == [graded, graded, (missing, missing)]
    assert exported.manifest["audited"] == {"judge": 2}


def test_a_later_audit_makes_another_file(store: Store, run: str, tmp_path: Path) -> None:
    before = export(store, tmp_path, Selection(run, "1"), "jsonl")
    assert export(store, tmp_path, Selection(run, "1"), "jsonl").path == before.path
    writes(store).questions.add_oracle_labels([OracleLabel(f"{run}/1/000002", "exact", "wrong", "8")])
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
    writes(store).ledger.claim_stage(**stage, lease_seconds=60)
    writes(store).questions.add_questions(questions)
    writes(store).questions.add_labels([LabelledQuestion(questions[0].id, questions[0].text, None, "kept")])
    with pytest.raises(NotFinal):
        export(store, tmp_path, Selection(run, "1"), "jsonl")
    writes(store).ledger.finish_stage(**stage, result={})
    with pytest.raises(NotFinal):
        export(store, tmp_path, Selection(run, "1"), "jsonl")
    writes(store).questions.add_labels([LabelledQuestion(questions[1].id, questions[1].text, None, "malformed")])
    exported = export(store, tmp_path, Selection(run, "1"), "jsonl")
    assert [row["verdict"] for row in read(exported.path, "jsonl")] == ["kept", "malformed"]
    assert (exported.manifest["asked_by"], exported.manifest["voted_by"]) == ({}, {})
    writes(store).ledger.claim_stage(**{**stage, "stage": "label_questions"}, lease_seconds=60)
    with pytest.raises(NotFinal):
        export(store, tmp_path, Selection(run, "1"), "jsonl")


def test_an_export_that_is_killed_at_any_point_is_absent_or_whole_and_the_next_one_completes_it(tmp_path: Path) -> None:
    assert crash_points("exports", tmp_path) > 10


def test_an_export_ends_with_the_server_and_leaves_no_file(store: Store, run: str, tmp_path: Path) -> None:
    """The process could not end before the last of a million rows was written."""
    with pytest.raises(StoreError):
        export(store, tmp_path, Selection(run, "1"), "jsonl", is_ending=lambda: True)
    assert [path for path in tmp_path.rglob("*.jsonl*") if path.is_file()] == []
    assert export(store, tmp_path, Selection(run, "1"), "jsonl").path.exists()
