"""An evaluation's records as files: every format has all questions with their answers, and later verdicts make another
file."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from evaluation_examples import ITEMS, ODD, store_answers, store_evaluation, store_recheck
from local_api import local_api
from sqlalchemy import text

from services.api.app import PREFIX
from services.client import Client
from services.evaluations import exports as record_exports
from services.evaluations.exports import export_records
from storage.errors import NotThere
from storage.exports.files import PLAIN_FORMATS, NotFinal, PlainFormat
from storage.session import Store
from tests.api_server import served

NOTHING = {"answer": None, "answer_class": None, "verdict": None, "tokens": 40, "truncated": True, "judged": []}


def read(path: Path, kind: PlainFormat) -> list[dict[str, Any]]:
    if kind == "jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if kind == "csv":
        rows = list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
        return [{**row, "answers": json.loads(row["answers"])} for row in rows]
    records: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return records


@pytest.mark.parametrize("kind", PLAIN_FORMATS)
def test_every_format_has_every_question_with_its_answers(
    store: Store, tmp_path: Path, kind: PlainFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_exports, "_ANSWERS", 15)  # three questions of four samples and a greedy answer
    key = store_evaluation(store, tmp_path / "texts")
    store_recheck(store, key, "judge_m")
    exported = export_records(store, tmp_path, tmp_path / "texts", key, kind)
    rows = read(exported.path, kind)
    assert [(row["id"], row["question"], row["reference"]) for row in rows] == [
        (item.id, item.problem, item.answer) for item in ITEMS
    ]
    last = rows[7]
    plain = {name: last[name] for name in ("level", "subject", "samples", "correct", "greedy_correct")}
    expected: dict[str, Any] = {"level": "hard", "subject": "subject 1", "samples": 4, "correct": 1}
    expected["greedy_correct"] = False
    assert plain == ({name: str(value) for name, value in expected.items()} if kind == "csv" else expected)
    greedy, right, *blank = last["answers"]
    columns = ("sample_index", "answer", "answer_class", "verdict", "tokens", "truncated", "text")
    for answer, expected_values, judged in (
        (greedy, (-1, ODD, None, "unequal", 9, False, f"so {ODD}"), "wrong"),
        (right, (0, "14", 0, "equal", 12, False, f"so {ODD}"), "right"),
    ):
        verdicts = [{"judge": "judge_m", "verdict": judged}]
        assert answer == {**dict(zip(columns, expected_values, strict=True)), "judged": verdicts}
    assert blank == [{**NOTHING, "sample_index": i, "text": f"so {ODD}"} for i in (1, 2, 3)]
    manifest = exported.manifest
    assert (manifest["rows"], manifest["answers"], manifest["judged"]) == (8, 40, {"judge_m": 28})
    assert (manifest["evaluation"], manifest["benchmark"], manifest["texts"]) == (key, "/data/sums.jsonl", True)
    assert manifest["manifest"]["engine"] == {"name": "openai"}
    assert manifest["sha256"] == hashlib.sha256(exported.path.read_bytes()).hexdigest()
    assert manifest["bytes"] == exported.path.stat().st_size
    again = export_records(store, tmp_path / "elsewhere", tmp_path / "texts", key, kind)
    assert again.path.read_bytes() == exported.path.read_bytes()


def test_a_later_recheck_makes_another_file_and_texts_may_be_missing(sqlite: Store, tmp_path: Path) -> None:
    key = store_evaluation(sqlite, tmp_path / "texts")
    before = export_records(sqlite, tmp_path, None, key, "jsonl")
    assert export_records(sqlite, tmp_path, tmp_path / "nowhere", key, "jsonl").path == before.path
    assert {answer["text"] for row in read(before.path, "jsonl") for answer in row["answers"]} == {None}
    assert not before.manifest["texts"]
    store_recheck(sqlite, key, "judge_m")
    after = export_records(sqlite, tmp_path, None, key, "jsonl")
    assert (after.path != before.path, before.manifest["judged"]) == (True, {})


def test_the_manifest_counts_the_verdicts_that_the_file_has(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, pages = store_evaluation(sqlite, tmp_path / "texts"), record_exports._pages

    def during_a_recheck(*arguments: Any) -> Any:
        store_recheck(sqlite, key, "judge_m")
        return pages(*arguments)

    monkeypatch.setattr(record_exports, "_pages", during_a_recheck)
    exported = export_records(sqlite, tmp_path, None, key, "jsonl")
    judged = [answer["judged"] for row in read(exported.path, "jsonl") for answer in row["answers"]]
    assert (sum(map(len, judged)), exported.manifest["judged"]) == (28, {"judge_m": 28})


def test_texts_that_a_file_format_cannot_hold_are_replaced(sqlite: Store, tmp_path: Path) -> None:
    key = store_evaluation(sqlite, tmp_path / "texts")
    with sqlite.write() as session:
        odd = {"answer": "=1\ue0000000", "problem": "=1+1\ue0000000"}  # how the store keeps NUL
        session.execute(text("UPDATE evaluated_answers SET answer = :answer"), odd)
        session.execute(text("UPDATE benchmark_items SET problem = :problem"), odd)
    rows = {kind: read(export_records(sqlite, tmp_path, None, key, kind).path, kind) for kind in PLAIN_FORMATS}
    questions = {kind: rows_of_kind[0]["question"] for kind, rows_of_kind in rows.items()}
    assert questions.pop("csv") == "'=1+1\ufffd"  # a spreadsheet would take it for a formula
    assert questions == dict.fromkeys(("jsonl", "parquet"), "=1+1\ufffd")
    assert {rows_of_kind[0]["answers"][0]["answer"] for rows_of_kind in rows.values()} == {"=1\ufffd"}


def test_an_evaluation_that_is_not_finished_or_not_there_is_not_exported(sqlite: Store, tmp_path: Path) -> None:
    key = store_answers(sqlite, ["7747", "8588", "99--"], "751")  # it is not marked as finished
    with pytest.raises(NotFinal, match=key):
        export_records(sqlite, tmp_path, None, key, "csv")
    with pytest.raises(NotThere):
        export_records(sqlite, tmp_path, None, "0" * 16, "csv")
    assert list(tmp_path.rglob("*.csv")) == []
    api = local_api(sqlite, tmp_path)
    paths = (f"{key}/exports/csv", f"{'0' * 16}/exports/csv/manifest", f"{key}/exports/huggingface")
    assert [api.get(f"{PREFIX}/evaluations/{path}").status_code for path in paths] == [409, 404, 422]


def test_the_client_downloads_the_file_that_rest_serves(sqlite: Store, tmp_path: Path) -> None:
    key = store_evaluation(sqlite, tmp_path / "texts")
    target = tmp_path / "records.parquet"
    with served(local_api(sqlite, tmp_path, texts=tmp_path / "texts").app) as url:
        manifest = Client(url).export(f"/evaluations/{key}/exports/parquet", target)
    assert (manifest["rows"], manifest["answers"], manifest["texts"]) == (8, 40, True)
    assert (manifest["bytes"], len(read(target, "parquet"))) == (target.stat().st_size, 8)
