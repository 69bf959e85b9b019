"""`coevo store verify` names each row that does not follow from the others, and each file that is not as it was."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from core.processes import identity as processes
from core.types import evaluation_id
from orchestrator.installation.home import Home
from storage.files.texts import RolloutText, TextWriter, read_texts
from storage.session import Store
from tests.orchestrator.stored_runs import copy_of, flip_bit, store_loop, violations

_DEAD = f"{processes.space()}:1:2"  # process 1 has another start time
# SQL that damages the stored run. Above each statement: the check that finds it, and the row that the check names.
SQL = """
-- labels: whole/1/000000: sample indices of the votes
DELETE FROM rollouts WHERE question_id = 'whole/1/000000' AND sample_index = 2;
-- labels: whole/1/000005: sample indices of the votes
UPDATE rollouts SET question_id = 'whole/1/000005' WHERE question_id = 'whole/1/000003' AND sample_index = 0;
-- labels: whole/1/000002: label: p_hat
UPDATE pseudo_labels SET p_hat = 0.75 WHERE question_id = 'whole/1/000002';
-- labels: whole/2/000000: label: classes
UPDATE pseudo_labels SET classes = '[["3", 2], ["5", 1]]' WHERE question_id = 'whole/2/000000';
-- labels: whole/2/000003: verdict
UPDATE pseudo_labels SET verdict = 'kept' WHERE question_id = 'whole/2/000003';
-- labels: whole/1/000006
DELETE FROM pseudo_labels WHERE question_id = 'whole/1/000006';
-- labels: filter_stats of iteration 2: kept
UPDATE filter_stats SET kept = kept + 1 WHERE iteration = 2;
-- labels: result of label_questions 1: kept
UPDATE stages SET result = '{"kept": 9}' WHERE iteration = 1 AND stage = 'label_questions';
-- oracle labels: whole/2/000000: verdict of exact
UPDATE oracle_labels SET verdict = 'wrong' WHERE question_id = 'whole/2/000000';
-- oracle labels: whole/2/000001: verdict of exact
DELETE FROM oracle_labels WHERE question_id = 'whole/2/000001';
-- oracle labels: result of audit_labels 1: audited
UPDATE stages SET result = '{"audited": 9}' WHERE iteration = 1 AND stage = 'audit_labels';
-- series: series p_hat of kept, iteration 1
UPDATE series SET value = value + 0.01 WHERE name = 'p_hat' AND over = 'kept' AND iteration = 1;
-- series: series kl, iteration 2
DELETE FROM series WHERE name = 'kl' AND iteration = 2;
-- series: series label_accuracy of all by exact, iteration 1
UPDATE series SET n = n + 1 WHERE name = 'label_accuracy' AND over = 'all' AND iteration = 1;
-- questions: whole/2/000004
DELETE FROM questions WHERE id = 'whole/2/000004';
-- questions: questions of iteration 2: checkpoint
UPDATE questions SET checkpoint = 'whole/challenger/1' WHERE id = 'whole/2/000001';
-- questions: votes of iteration 2: checkpoint
UPDATE rollouts SET checkpoint = 'whole/base/0' WHERE question_id = 'whole/2/000001';
-- trained checkpoints: whole/solver/2: parent
UPDATE checkpoints SET parent = 'whole/base/0' WHERE id = 'whole/solver/2';
-- trained checkpoints: whole/labelled/1: sha256
UPDATE checkpoints SET sha256 = 'another' WHERE id = 'whole/labelled/1';
-- trained checkpoints: whole/solver/3
INSERT INTO checkpoints (id, run, role, iteration, step, path, sha256, manifest, parent, files_removed)
SELECT 'whole/solver/3', run, role, 3, step, path, sha256, manifest, parent, files_removed
FROM checkpoints WHERE id = 'whole/solver/2';
-- references: checkpoints without a parent
UPDATE checkpoints SET parent = NULL WHERE id = 'whole/challenger/2';
-- checkpoints: whole/challenger/1: sha256 of the manifest in the row
UPDATE checkpoints SET manifest = '{}' WHERE id = 'whole/challenger/1';
-- questions trained on: whole/solver/1 trained on whole/1/000003
UPDATE trained_on SET question_id = 'whole/1/000003' WHERE question_id = 'whole/1/000000';
-- questions trained on: whole/solver/2: steps with questions
DELETE FROM trained_on WHERE checkpoint = 'whole/solver/2';
-- training steps: train_challenger of iteration 1: steps with metrics
DELETE FROM train_metrics WHERE iteration = 1 AND role = 'challenger' AND step = 1;
-- training steps: train_labelled of iteration 2: steps with metrics
UPDATE train_metrics SET step = 9 WHERE iteration = 2 AND name = 'labelled_kl' AND step = 4;
-- training steps: train_solver of iteration 1, step 2: rollouts of each prompt
DELETE FROM training_rollouts WHERE iteration = 1 AND role = 'solver' AND step = 2 AND prompt = 1;
-- training steps: train_labelled of iteration 1, step 4: rollouts of each prompt
DELETE FROM training_rollouts WHERE iteration = 1 AND role = 'solver' AND step = 4 AND rollout = 2;
-- training steps: train_solver of iteration 2, step 1: rollouts of each prompt
DELETE FROM training_rollouts WHERE iteration = 2 AND role = 'solver' AND step = 1;
-- training steps: train_challenger of iteration 2, step 1, prompt 0: advantages
UPDATE training_rollouts SET reward = 0.5 WHERE iteration = 2 AND role = 'challenger' AND rollout = 1;
-- training steps: train_solver of iteration 1, step 1, prompt 1: rewards
UPDATE training_rollouts SET reward = 9e999 WHERE iteration = 1 AND step = 1 AND rollout = 3;
-- evaluations: evaluate of iteration 1: evaluation of whole/solver/1 on BENCHMARK
UPDATE evaluations SET finished_at = NULL WHERE checkpoint_id = 'whole/solver/1';
-- evaluations: result of evaluate of iteration 1: checkpoint
UPDATE stages SET result = '{"checkpoint": "whole/base/0"}' WHERE iteration = 1 AND stage = 'evaluate';
-- evaluations: result of evaluate of iteration 2: items
UPDATE stages SET result = '{"checkpoint": "whole/solver/2", "items": 9}' WHERE iteration = 2 AND stage = 'evaluate';
-- evaluated questions: BENCHMARK, whole/base/0, question 0: correct
UPDATE evaluated_items SET correct = 3 WHERE item_id = '0'
AND evaluation_id IN (SELECT id FROM evaluations WHERE checkpoint_id = 'whole/base/0');
-- evaluated questions: BENCHMARK, whole/solver/2, question 1
DELETE FROM evaluated_items WHERE item_id = '1'
AND evaluation_id IN (SELECT id FROM evaluations WHERE checkpoint_id = 'whole/solver/2');
-- evaluated questions: BENCHMARK, whole/labelled/2, question 0, sample 0: answer_class
UPDATE evaluated_answers SET answer_class = 1 WHERE item_id = '0' AND sample_index = 0
AND evaluation_id IN (SELECT id FROM evaluations WHERE checkpoint_id = 'whole/labelled/2');
-- evaluated questions: BENCHMARK, whole/solver/2, question 0, sample 1: verdict
UPDATE evaluated_answers SET verdict = 'unequal' WHERE item_id = '0' AND sample_index = 1
AND evaluation_id IN (SELECT id FROM evaluations WHERE checkpoint_id = 'whole/solver/2');
-- evaluated questions: BENCHMARK, whole/labelled/1, question 0: greedy_correct
UPDATE evaluated_items SET greedy_correct = NOT greedy_correct WHERE item_id = '0'
AND evaluation_id IN (SELECT id FROM evaluations WHERE checkpoint_id = 'whole/labelled/1');
-- evaluated questions: BENCHMARK, whole/solver/1, question 0: majority_correct
UPDATE evaluated_items SET majority_correct = NOT majority_correct WHERE item_id = '0'
AND evaluation_id IN (SELECT id FROM evaluations WHERE checkpoint_id = 'whole/solver/1');
-- evaluated questions: BENCHMARK, whole/labelled/1, question 1: sample indices
DELETE FROM evaluated_answers WHERE item_id = '1' AND sample_index = 1
AND evaluation_id IN (SELECT id FROM evaluations WHERE checkpoint_id = 'whole/labelled/1');
-- stages: check_health of iteration 1
UPDATE stages SET result = NULL WHERE iteration = 1 AND stage = 'check_health';
-- stages: audit_labels of iteration 2
UPDATE stages SET finished_at = created_at FROM runs WHERE iteration = 2 AND stage = 'audit_labels';
-- stages: check_health of iteration 2
DELETE FROM stages WHERE iteration = 2 AND stage = 'audit_labels';
-- stages: evaluate_labelled of iteration 3
UPDATE stages SET iteration = 3 WHERE iteration = 2 AND stage = 'evaluate_labelled';
-- leases: lease on run whole
INSERT INTO run_leases VALUES ('whole', 'DEAD', '2999-01-01 00:00:00');
"""
DAMAGES: list[tuple[str, str, str]] = re.findall(r"^-- (.+?): (.+)\n([^;]+);", SQL, re.MULTILINE)


@pytest.mark.parametrize(("check", "row", "statement"), DAMAGES)
def test_each_damaged_row_is_named_by_its_check(
    loop_home: Home, tmp_path: Path, check: str, row: str, statement: str
) -> None:
    home, store = copy_of(loop_home, tmp_path)
    with store.write() as session:
        assert session.connection().exec_driver_sql(statement.replace("DEAD", _DEAD)).rowcount > 0
    row = row.replace("BENCHMARK", str(loop_home.path / "benchmark.jsonl"))
    assert [name for name, named in violations(home, store).items() if row in [of.row for of in named]] == [check]


def test_all_damages_at_once_are_named_on_either_database(store: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    store_loop(store, home)
    assert violations(home, store) == {}
    with store.write() as session:
        for _, row, statement in DAMAGES:
            if not row.endswith("rewards"):  # it is infinity for SQLite only
                session.execute(text(statement.replace("DEAD", _DEAD)))
    assert {check for check, *_ in DAMAGES} <= violations(home, store).keys()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def rewrite(change: Callable[[list[RolloutText]], list[RolloutText]]) -> Callable[[Path], None]:
    """Write a file of texts anew with other rows."""

    def rewritten(path: Path) -> None:
        kept = read_texts(path)
        path.unlink()
        writer = TextWriter(path)
        writer.add(0, change(kept))
        writer.finish()

    return rewritten


SOLVER, VOTES = "checkpoints/whole/solver/2", "texts/whole/1/label_questions.parquet"
TRAINING, BRANCH = "texts/whole/1/train_solver.parquet", "texts/whole/2/train_labelled.parquet"
FIRST, OTHER = f"whole/1/000000, sample 0: texts in HOME/{VOTES}", [RolloutText("000009/000000", 0, "")]
# A damaged file, how -> the check that finds it, the row that it names, and a part of what it says is stored.
FILES: dict[str, tuple[str, Callable[[Path], None], str, str, str]] = {
    "a flipped bit": (f"{SOLVER}/model.safetensors", flip_bit, "checkpoints", "files of whole/solver/2", "has changed"),
    "a missing file": (f"{SOLVER}/config.json", Path.unlink, "checkpoints", "files of whole/solver/2", "is missing"),
    "a changed manifest": (f"{SOLVER}/manifest.json", truncate, "checkpoints", "files of whole/solver/2", "not JSON"),
    "truncated texts": (VOTES, truncate, "texts", f"HOME/{VOTES}", "cannot be read"),
    "no texts": (BRANCH, Path.unlink, "texts", f"HOME/{BRANCH}", "no such file"),
    "a missing text": (VOTES, rewrite(lambda kept: kept[1:]), "texts", FIRST, "0"),
    "a text twice": (VOTES, rewrite(lambda kept: [*kept, kept[0]]), "texts", FIRST, "2"),
    "a text of nothing": (
        TRAINING,
        rewrite(lambda kept: [*kept, *OTHER]),
        "texts",
        f"000009/000000, sample 0: texts in HOME/{TRAINING}",
        "1",
    ),
    "another text": (
        VOTES,
        rewrite(lambda kept: [kept[0]._replace(text="\\boxed{8}"), *kept[1:]]),
        "texts",
        "whole/1/000000, sample 0: answer",
        "'3'",
    ),
    "truncated texts of an evaluation": (
        "texts/_evaluations/KEY.parquet",
        truncate,
        "texts",
        "HOME/texts/_evaluations/KEY.parquet",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("what", FILES)
def test_each_damaged_file_is_named(loop_home: Home, tmp_path: Path, what: str) -> None:
    home, store = copy_of(loop_home, tmp_path)
    name, damage, check, row, stored = FILES[what]
    key = evaluation_id("whole/base/0", str(loop_home.path / "benchmark.jsonl"))
    damage(home.path / name.replace("KEY", key))
    [violation] = violations(home, store).pop(check)
    assert violation.row == row.replace("HOME", str(home.path)).replace("KEY", key)
    assert stored in violation.stored


def test_rows_that_refer_to_nothing_are_named(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path)
    with sqlite3.connect(home.path / "coevo.db") as connection:  # without foreign keys, as when a file is damaged
        connection.execute("DELETE FROM checkpoints WHERE id = 'whole/solver/1'")
        connection.execute("DELETE FROM questions WHERE id = 'whole/2/000004'")
    named = violations(home, store)
    missing = {(violation.row, violation.expected) for violation in named["references"]}
    assert ("checkpoints whole/solver/2: parent", "'whole/solver/1 in checkpoints'") in missing
    assert ("rollouts whole/2/000004 0: question_id", "'whole/2/000004 in questions'") in missing
    [begun] = [violation for violation in named["trained checkpoints"] if violation.row == "whole/solver/1: parent"]
    assert begun.stored == "nothing"
