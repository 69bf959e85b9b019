"""`coevo export`: questions of a run and records of an evaluation as files with their manifests."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from core.types import Rollout, question_id
from orchestrator.disk.files import exports_of_runs
from orchestrator.installation.home import Home
from services.api.app import create_app
from services.drift.series import refresh
from storage import queries
from storage.exports.files import OF_RUNS
from storage.rows import ExperimentRun
from storage.session import Store
from tests.commands import coevo, json_of
from tests.services.evaluation_examples import store_evaluation
from tests.synthetic_run import fill_run


@pytest.fixture
def key(home: Home, sqlite: Store) -> str:
    fill_run(sqlite, "demo", per_level=2)
    return store_evaluation(sqlite, home.texts)


def exported(*arguments: str | Path) -> tuple[Any, list[Any]]:
    """The printed manifest, and the rows of the JSONL file, which is the last argument."""
    manifest, file = json_of("export", *arguments), Path(arguments[-1])
    assert json.loads(file.with_name(f"{file.name}.manifest.json").read_text()) == manifest
    return manifest, [json.loads(line) for line in file.read_text().splitlines()]


def test_records_and_questions_are_written_with_their_manifests(key: str, tmp_path: Path) -> None:
    manifest, rows = exported("evaluation", key, tmp_path / "records.jsonl")
    assert (manifest["rows"], manifest["answers"], len(rows)) == (8, 40, 8)
    assert rows[0]["answers"][0]["text"].startswith("so ")
    every, rows = exported("questions", "demo", "1", tmp_path / "all.jsonl")
    assert {row["run"] for row in rows} == {"demo"}
    kept, rows = exported("questions", "demo", "1", "--kept", tmp_path / "kept.jsonl")
    assert 0 < kept["rows"] == len(rows) == every["verdicts"]["kept"] < every["rows"]


def test_metrics_are_written_with_their_intervals_and_a_later_value_makes_another_file(
    key: str, sqlite: Store, tmp_path: Path
) -> None:
    with sqlite.write() as session:
        refresh(session, "demo", 1)
    manifest, rows = exported("metrics", "demo", tmp_path / "metrics.jsonl")
    assert manifest["rows"] == sum(manifest["kinds"].values()) == len(rows)
    assert [*rows[0]] == manifest["columns"]
    [accuracy] = [row for row in rows if row["name"] == "label_accuracy/kept/exact"]
    assert (accuracy["kind"], accuracy["iteration"], accuracy["step"], accuracy["x"]) == ("series", 1, None, 1)
    assert accuracy["lower"] < accuracy["value"] < accuracy["upper"]
    kl = [row for row in rows if row["name"] == "training/solver/kl"]
    assert [row["x"] for row in kl] == [*range(1, 61)]
    assert (kl[20]["iteration"], kl[20]["step"], kl[20]["role"]) == (2, 1, "solver")
    assert {row["x"] for row in rows if row["name"] == "evaluation/micro/pass_at_1"} == {0, 1, 2, 3}
    for ending in ("csv", "parquet"):
        coevo("export", "metrics", "demo", tmp_path / f"metrics.{ending}")
    read = pq.read_table(tmp_path / "metrics.parquet").to_pylist()
    assert read == rows
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [row["value"] for row in csv.DictReader(file)] == [str(row["value"]) for row in rows]
    with sqlite.write() as session:
        refresh(session, "demo", 2)
    assert exported("metrics", "demo", tmp_path / "metrics.jsonl")[0]["rows"] > manifest["rows"]


def test_a_list_of_iterations_is_exported_and_counted_over_rest(key: str, sqlite: Store, tmp_path: Path) -> None:
    manifest, rows = exported("questions", "demo", "1,3", tmp_path / "two.jsonl")
    assert (manifest["iterations"], {row["iteration"] for row in rows}) == ([1, 3], {1, 3})
    assert [path.name.startswith("demo-2of1-3-questions-") for path in tmp_path.glob("exports/demo/*.jsonl")] == [True]
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), "http://localhost")
    counted = api.get("/api/v1/runs/demo/export/rows?iterations=3,1").json()
    assert (counted["iterations"], counted["questions"]) == ([1, 3], len(rows))
    refused = api.get("/api/v1/runs/demo/export/rows?iterations=1;3").json()["detail"]
    assert refused.startswith("query.iterations: expected an iteration such as 2, a range such as 1-3, a list of these")


def test_several_runs_or_an_experiment_are_one_file(key: str, sqlite: Store, tmp_path: Path) -> None:
    fill_run(sqlite, "second", per_level=2, seed=2)
    with sqlite.write() as session:
        for position, (run, arm) in enumerate((("second", "base"), ("demo", "ours"))):
            queries.experiments.add_run(session, ExperimentRun(run, "ablation", arm, position, 0))
    single = [exported("questions", run, "all", "--kept", tmp_path / "one.jsonl")[1] for run in ("second", "demo")]
    for names in (("second", "demo"), ("--experiment", "ablation")):
        manifest, rows = exported("questions", *names, "all", "--kept", tmp_path / "several.jsonl")
        assert [row["arm"] for row in rows] == ["base"] * len(single[0]) + ["ours"] * len(single[1])
        assert [{name: row[name] for name in single[0][0]} for row in rows] == [*single[0], *single[1]]
        assert ([run["run"] for run in manifest["runs"]], manifest["left_out"]) == (["second", "demo"], [])
    assert [*exports_of_runs(tmp_path / "exports" / OF_RUNS).values()] == [["second", "demo"]]
    coevo("runs", "delete", "second", "--yes")
    assert [*(tmp_path / "exports" / OF_RUNS).iterdir()] == []


def test_several_iterations_and_filters_are_exported_as_questions_and_as_votes(
    key: str, sqlite: Store, tmp_path: Path
) -> None:
    numbers = [(i, s) for i in (0, 1) for s in (0, 1)]
    voted = [Rollout(question_id("demo", 2, i), s, "", "3", 7, "stop", 0.1, 0.0, "demo/base/0", s) for i, s in numbers]
    with sqlite.write() as session:
        queries.questions.add_rollouts(session, voted)
    filters = ("--verdict", "too_easy", "--p-hat-min", "0.9")
    manifest, rows = exported("questions", "demo", "2-3", *filters, tmp_path / "a.jsonl")
    assert ({row["iteration"] for row in rows}, {row["verdict"] for row in rows}) == ({2, 3}, {"too_easy"})
    assert min(row["p_hat"] for row in rows) >= 0.9
    assert manifest["filters"] == {"verdicts": ["too_easy"], "p_hat_min": 0.9}
    for what in ("questions", "votes"):
        manifest, rows = exported(what, "demo", "2", "--cluster", "0", tmp_path / f"cluster_{what}.jsonl")
        assert (manifest["filters"], rows) == ({"cluster": 0}, [])  # none was compared
    manifest, rows = exported("votes", "demo", "all", "--texts", tmp_path / "b.jsonl")
    assert [(row["question_id"], row["sample_index"], row["text"]) for row in rows] == [
        (vote.question_id, vote.sample_index, None) for vote in voted
    ]
    assert manifest["iterations"] == [1, 2, 3]


def test_without_json_the_files_and_the_number_of_rows_are_printed(key: str, tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    for arguments, rows in ((("questions", "demo", "1"), "320"), (("evaluation", key), "8")):
        printed = coevo("export", *arguments, file).stdout
        assert printed == f"wrote {rows} rows to {file}, and their manifest to {file}.manifest.json\n"
        assert (tmp_path / "all.csv.manifest.json").is_file()
