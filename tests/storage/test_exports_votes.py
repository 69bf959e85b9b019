"""Exports of votes, of several iterations and runs, and of filtered questions."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from store_examples import end_stage, fresh_run, label, question, reads, rollout, writes
from test_exports_runs import read

from core.settings.parsing import parse_config
from core.types import OracleLabel, PseudoLabel, Question, question_id
from storage.errors import NotThere, StoreError
from storage.exports import files as export_files
from storage.exports import runs as exports
from storage.exports.columns import TEXT_COLUMN, VOTE_COLUMNS, WHATS, What
from storage.exports.files import NotFinal
from storage.exports.runs import FORMATS, Format, export
from storage.exports.selection import Selection, parse_iterations
from storage.files.texts import TextWriter, texts_path
from storage.models import Runs
from storage.queries.browse import QuestionFilter
from storage.rows import ExperimentRun
from storage.session import Store

ANSWERS = ("3", "3.0", "4", None)  # equal, equal, another class, no answer


def at(row: Question, iteration: int) -> Question:
    return replace(row, id=question_id(row.run, iteration, row.index), iteration=iteration)


@pytest.fixture
def run(store: Store) -> str:
    return labelled_run(store)


def labelled_run(store: Store) -> str:
    """A run with three labelled questions in each of the iterations 1 and 2, the third of them malformed, and with
    questions without labels in iteration 3."""
    run = fresh_run(store)
    vote = PseudoLabel("3", 2, 4, 3, 0, 0.5, "all", (("3", 2), ("4", 1)))
    for iteration in (1, 2, 3):
        writes(store).questions.add_questions([at(question(run, index), iteration) for index in range(3)])
    for iteration in (1, 2):
        keys = [question_id(run, iteration, index) for index in range(3)]
        for i, key in enumerate(keys[:2]):
            votes = [replace(rollout(run, i, s, ANSWERS[s]), question_id=key, seed=2**62 + s) for s in range(4)]
            writes(store).questions.add_rollouts(votes)
        labels = [replace(label(run, i), question_id=keys[i], label=vote) for i in range(2)]
        labels[1] = replace(labels[1], verdict="too_easy", label=replace(vote, p_hat=1.0))
        labels.append(replace(label(run, 2), question_id=keys[2], label=None, verdict="malformed"))
        writes(store).questions.add_labels(labels)
    end_stage(store, run, 1)
    end_stage(store, run, 2)
    return run


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_has_one_row_for_each_vote(store: Store, run: str, tmp_path: Path, kind: Format) -> None:
    exported = export(store, tmp_path, Selection(run, "1", "votes"), kind)
    rows = read(exported.path, kind)
    assert list(rows[0]) == [column.name for column in VOTE_COLUMNS]
    missing = "" if kind == "csv" else None
    assert [(int(row["index"]), int(row["sample_index"])) for row in rows] == [(i, s) for i in (0, 1) for s in range(4)]
    assert [row["answer"] for row in rows[:4]] == [*ANSWERS[:3], missing]
    assert [row["in_class"] for row in rows[:4]] == (["0", "0", "1", ""] if kind == "csv" else [0, 0, 1, None])
    agrees = [True, True, False, False]
    assert [row["agrees"] for row in rows[:4]] == ([*map(str, agrees)] if kind == "csv" else agrees)
    assert [int(row["seed"]) for row in rows[:4]] == [2**62 + s for s in range(4)]
    assert isinstance(rows[0]["seed"], str if kind in ("jsonl", "csv") else int)  # in JSON as in the REST API
    assert {row["checkpoint"] for row in rows} == {f"{run}/base/0"}
    assert (float(rows[1]["mean_entropy"]), float(rows[1]["entropy_error"])) == (pytest.approx(0.1 + 1 / 3), 0.0)
    manifest = exported.manifest
    assert (manifest["rows"], manifest["questions"], manifest["texts"], manifest["what"]) == (8, 3, 0, "votes")


def test_a_vote_whose_class_is_unclear_neither_agrees_nor_disagrees(store: Store, run: str, tmp_path: Path) -> None:
    """Two classes have room for it: the label was made by a grader that found more answers equal than their texts."""
    vote = PseudoLabel("3", 2, 4, 4, 0, 0.5, "all", (("3", 2), ("5", 2)))
    answers = ("3", "x", "5", "y")
    writes(store).questions.add_questions([at(question(run, 7), 2)])
    keys = question_id(run, 2, 7)
    votes = [replace(rollout(run, 7, s, answer), question_id=keys) for s, answer in enumerate(answers)]
    writes(store).questions.add_rollouts(votes)
    writes(store).questions.add_labels([replace(label(run, 7), question_id=keys, label=vote)])
    rows = read(export(store, tmp_path, Selection(run, "2", "votes"), "jsonl").path, "jsonl")
    assert [row["agrees"] for row in rows if row["index"] == 7] == [True, None, False, None]


def test_texts_are_exported_where_the_run_kept_them(store: Store, run: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    writer = TextWriter(texts_path(texts, run, 1, "label_questions"))
    writer.add(0, [replace(rollout(run, 0, s), text=f"so {s}\0") for s in (0, 2)])
    writer.finish()
    chosen = Selection(run, "1-2", "votes", texts=True)
    exported = export(store, tmp_path, chosen, "parquet", texts)
    rows = read(exported.path, "parquet")
    assert list(rows[0]) == [column.name for column in (*VOTE_COLUMNS, TEXT_COLUMN)]
    assert [row["text"] for row in rows] == ["so 0\ufffd", None, "so 2\ufffd", None, *[None] * 12]
    assert exported.manifest["texts"] == 2
    without = export(store, tmp_path, chosen, "parquet", None)
    assert (without.path != exported.path, without.manifest["texts"]) == (True, 0)
    with pytest.raises(StoreError, match=r"^texts: "):
        Selection(run, texts=True)


@pytest.mark.parametrize("kind", FORMATS)
def test_several_iterations_are_one_file(store: Store, run: str, tmp_path: Path, kind: Format) -> None:
    writes(store).questions.add_oracle_labels([OracleLabel(question_id(run, 2, 0), "exact", "wrong", "8")])
    exported = export(store, tmp_path, Selection(run, "1-2"), kind)
    rows = read(exported.path, kind)
    assert [(int(row["iteration"]), int(row["index"])) for row in rows] == [(t, i) for t in (1, 2) for i in range(3)]
    missing = "" if kind == "csv" else None
    assert [row["exact_truth"] for row in rows] == [missing] * 3 + ["8"] + [missing] * 2
    assert (exported.manifest["iterations"], exported.manifest["audited"]) == ([1, 2], {"exact": 1})
    for same in ("all", "2,1", "1,1-2"):  # the third is not labelled yet
        assert export(store, tmp_path, Selection(run, same), kind).path == exported.path
    assert len(read(export(store, tmp_path, Selection(run, what="votes"), kind).path, kind)) == 16


@pytest.fixture
def arms(store: Store) -> list[str]:
    """Three runs with the same rows: two of an experiment, the second of them graded, and one of none."""
    runs = [labelled_run(store) for _ in range(3)]
    for position, (run, arm) in enumerate(zip(runs, ("base", "ours"), strict=False)):
        writes(store).experiments.add_run(ExperimentRun(run, f"of-{runs[0]}", arm, position, 0))
    writes(store).questions.add_oracle_labels([OracleLabel(question_id(runs[1], 1, 0), "exact", "wrong", "8")])
    return runs


@pytest.mark.parametrize("filters", [QuestionFilter(), QuestionFilter(verdicts=("kept",))])
@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("kind", FORMATS)
def test_the_file_of_several_runs_has_the_rows_of_their_files_with_their_places(
    store: Store, arms: list[str], tmp_path: Path, kind: Format, what: What, filters: QuestionFilter
) -> None:
    def exported(runs: str | tuple[str, ...]) -> list[dict[str, Any]]:
        return read(export(store, tmp_path, Selection(runs, what=what, filters=filters), kind).path, kind)

    missing, graded = ("" if kind == "csv" else None), {"exact_verdict", "exact_truth"} if what == "questions" else ()
    places = [(f"of-{arms[0]}", "base"), (f"of-{arms[0]}", "ours"), (missing, missing)]
    seeds = [reads(store).runs.get_run(run).seed for run in arms]
    expected = [
        {
            **{"experiment": experiment, "arm": arm, "run_seed": str(seed) if kind in ("csv", "jsonl") else seed},
            **dict.fromkeys(graded, missing),
            **row,
        }
        for run, (experiment, arm), seed in zip(arms, places, seeds, strict=True)
        for row in exported(run)
    ]
    rows = exported(tuple(arms))
    assert rows == expected
    assert len(rows) > 0
    assert list(rows[0])[:3] == ["experiment", "arm", "run_seed"]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_manifest_of_several_runs_names_those_that_it_leaves_out(
    store: Store, arms: list[str], tmp_path: Path, kind: Format
) -> None:
    unlabelled = fresh_run(store)
    exported = export(store, tmp_path, Selection((*arms, unlabelled, arms[0])), kind)
    manifest = exported.manifest
    assert [(run["run"], run["arm"], run["iterations"]) for run in manifest["runs"]] == [
        (arms[0], "base", [1, 2]),
        (arms[1], "ours", [1, 2]),
        (arms[2], None, [1, 2]),
    ]
    assert (manifest["left_out"], manifest["rows"], manifest["audited"]) == ([unlabelled], 18, {"exact": 1})
    assert manifest["asked_by"].keys() == {f"{run}/base/0" for run in arms}
    config = parse_config(manifest["runs"][0]["config"], "test")
    writes(store).runs.set_limits(arms[0], config.model_copy(update={"iterations": config.iterations + 1}))
    again = export(store, tmp_path / "again", Selection((*arms, unlabelled)), kind)
    assert (again.path.name, again.path.read_bytes()) == (exported.path.name, exported.path.read_bytes())
    refused = (Selection((arms[0], unlabelled), "1"), Selection((unlabelled,)), Selection((arms[0], "nobody")))
    for selection, error in zip(refused, (NotFinal, NotFinal, NotThere), strict=True):
        with pytest.raises(error, match=rf"{unlabelled}|nobody"):
            export(store, tmp_path, selection, kind)


def test_a_run_made_anew_under_its_name_makes_another_file(sqlite: Store, tmp_path: Path) -> None:
    run = labelled_run(sqlite)
    before = export(sqlite, tmp_path, Selection((run,)), "jsonl")
    with sqlite.write() as session:
        session.execute(update(Runs).where(Runs.name == run).values(created_at=datetime.now(UTC)))
    assert export(sqlite, tmp_path, Selection((run,)), "jsonl").path != before.path


def test_what_is_not_there_or_not_final_is_refused(store: Store, run: str, tmp_path: Path) -> None:
    with pytest.raises(NotFinal, match="iteration 3"):
        export(store, tmp_path, Selection(run, "1-3"), "csv")
    assert list(tmp_path.rglob("*.csv")) == []
    planned = reads(store).runs.get_run(run).iterations
    with pytest.raises(NotThere, match=f"iteration 999999999: .* 0 to {planned}"):
        export(store, tmp_path, Selection(run, "1-999999999,2"), "csv")
    for text in ("", "3-1", "1-", "-1", "one", "1,", "1,,2", "1,3-2", "9999999999"):
        with pytest.raises(StoreError, match="iterations: "):
            parse_iterations(text)
    with pytest.raises(NotFinal, match="no iteration"):
        export(store, tmp_path, Selection(fresh_run(store)), "csv")


@pytest.mark.parametrize(
    ("filters", "indices"),
    [
        (QuestionFilter(verdicts=("kept",)), [0]),
        (QuestionFilter(verdicts=("kept", "malformed")), [0, 2]),
        (QuestionFilter(p_hat_min=0.6), [1]),
        (QuestionFilter(p_hat_max=0.5, text="1 + 2"), [0]),
        (QuestionFilter(text="nowhere"), []),
        (QuestionFilter(oracle="exact"), [0, 1]),
        (QuestionFilter(oracle_verdict="wrong"), [1]),
    ],
)
def test_an_export_has_the_questions_that_the_filters_select(
    store: Store, run: str, tmp_path: Path, filters: QuestionFilter, indices: list[int]
) -> None:
    graded = [OracleLabel(question_id(run, 1, 0), "exact", "right", "3")]
    graded += [OracleLabel(question_id(run, 1, 1), "exact", "wrong", "4")]
    writes(store).questions.add_oracle_labels(graded)
    counts = writes(store).browse.count_rows(run, 1, filters)
    questions = read(export(store, tmp_path, Selection(run, "1", filters=filters), "parquet").path, "parquet")
    votes = read(export(store, tmp_path, Selection(run, "1", "votes", filters), "parquet").path, "parquet")
    assert [row["index"] for row in questions] == indices
    assert sorted({row["index"] for row in votes}) == [index for index in indices if index < 2]
    assert counts == (len(questions), len(votes))


def test_an_audit_changes_an_export_of_votes_only_if_it_is_filtered_by_it(
    store: Store, run: str, tmp_path: Path
) -> None:
    plain = Selection(run, "1", "votes")
    by_oracle = replace(plain, filters=QuestionFilter(oracle="exact"))
    before = [export(store, tmp_path, chosen, "csv") for chosen in (plain, by_oracle)]
    writes(store).questions.add_oracle_labels([OracleLabel(question_id(run, 1, 0), "exact", "right", "3")])
    after = [export(store, tmp_path, chosen, "csv") for chosen in (plain, by_oracle)]
    assert before[0].path == after[0].path
    assert [export.manifest["rows"] for export in (before[1], after[1])] == [0, 4]
    # An audit does not make a new manifest, so none counts audits.
    assert export(store, tmp_path / "later", plain, "csv").manifest["audited"] == {}


def test_the_files_that_were_written_first_are_removed(
    store: Store, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every filter makes a file, so somebody who may only read could fill the disk."""
    monkeypatch.setattr(exports, "MOST_FILES", 3)
    written = []
    for i in range(5):
        filters = QuestionFilter(p_hat_min=i / 10)
        written.append(export(store, tmp_path, Selection(run, "1", filters=filters), "csv").path)
        os.utime(written[-1], ns=(i, i))
    kept = [path for path in (tmp_path / run).iterdir() if path.suffix == ".csv"]
    assert sorted(kept) == sorted(written[2:])
    assert all(export_files.manifest_path_of(path).exists() for path in kept)
    assert len(list((tmp_path / run).iterdir())) == 6


def test_100_000_votes_are_not_held_in_memory(sqlite: Store, tmp_path: Path) -> None:
    """All rows together take more than 70 MB."""
    run, count = fresh_run(sqlite), 1_000
    vote = PseudoLabel("3", 100, 100, 100, 0, 1.0, "all", (("3", 100),))
    writes(sqlite).questions.add_questions([question(run, index) for index in range(count)])
    writes(sqlite).questions.add_rollouts(rollout(run, i, s) for i in range(count) for s in range(100))
    writes(sqlite).questions.add_labels([replace(label(run, i), label=vote) for i in range(count)])
    end_stage(sqlite, run)
    export(sqlite, tmp_path, Selection(run, "1", "votes", QuestionFilter(text="nothing")), "jsonl")  # imports modules
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is in memory
    before = _peak_mb()
    exported = export(sqlite, tmp_path, Selection(run, "1", "votes"), "jsonl")
    assert exported.manifest["rows"] == 100_000
    assert _peak_mb() - before < 50


def _peak_mb() -> float:
    """The largest memory of this process since the peak was reset."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1_024
