"""`coevo verify` names each row that does not follow from the others, on both databases."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update

from orchestrator.installation import processes
from orchestrator.installation.home import Home
from orchestrator.verification.checks import Verification
from orchestrator.verification.run import verify_run
from storage.models import TrainingRollouts
from storage.session import Store
from tests.orchestrator.stored_runs import RUN, copy_of, store_loop, store_rounds

_DEAD = f"{processes.space()}:1:2"  # process 1 has another start time

# What is changed by hand -> the check that finds it, and the row that it names.
PLANTED = {
    "DELETE FROM rollouts WHERE question_id = 'whole/1/000000' AND sample_index = 2": (
        "votes",
        "whole/1/000000: sample indices of the votes",
    ),
    "UPDATE rollouts SET question_id = 'whole/1/000005' WHERE question_id = 'whole/1/000003' AND sample_index = 0": (
        "votes",
        "whole/1/000005: sample indices of the votes",
    ),
    "UPDATE pseudo_labels SET p_hat = 0.75 WHERE question_id = 'whole/1/000002'": (
        "pseudo-labels",
        "whole/1/000002: p_hat",
    ),
    """UPDATE pseudo_labels SET classes = '[["3", 2], ["5", 1]]' WHERE question_id = 'whole/2/000000'""": (
        "pseudo-labels",
        "whole/2/000000: classes",
    ),
    "UPDATE pseudo_labels SET verdict = 'kept' WHERE question_id = 'whole/2/000003'": (
        "verdicts",
        "whole/2/000003: verdict",
    ),
    "DELETE FROM pseudo_labels WHERE question_id = 'whole/1/000006'": ("verdicts", "whole/1/000006: verdict"),
    "UPDATE filter_stats SET kept = kept + 1 WHERE iteration = 2": (
        "filter statistics",
        "filter_stats of iteration 2: kept",
    ),
    "UPDATE series SET value = value + 0.01 WHERE name = 'p_hat' AND over = 'kept' AND iteration = 1": (
        "series",
        "series p_hat of kept, iteration 1",
    ),
    "DELETE FROM series WHERE name = 'kl' AND iteration = 2": ("series", "series kl, iteration 2"),
    "UPDATE series SET n = n + 1 WHERE name = 'label_accuracy' AND over = 'all' AND iteration = 1": (
        "label accuracy",
        "series label_accuracy of all by exact, iteration 1",
    ),
    "UPDATE oracle_labels SET verdict = 'wrong' WHERE question_id = 'whole/2/000000'": (
        "oracle's labels",
        "whole/2/000000: verdict of exact",
    ),
    "DELETE FROM questions WHERE id = 'whole/2/000004'": ("questions", "whole/2/000004"),
    "UPDATE questions SET checkpoint = 'whole/challenger/1' WHERE id = 'whole/2/000001'": (
        "writers of questions and votes",
        "questions of iteration 2: checkpoint",
    ),
    "UPDATE rollouts SET checkpoint = 'whole/base/0' WHERE question_id = 'whole/2/000001'": (
        "writers of questions and votes",
        "votes of iteration 2: checkpoint",
    ),
    "UPDATE checkpoints SET parent = 'whole/base/0' WHERE id = 'whole/solver/2'": (
        "trained checkpoints",
        "whole/solver/2: parent",
    ),
    "UPDATE checkpoints SET sha256 = 'another' WHERE id = 'whole/labelled/1'": (
        "trained checkpoints",
        "whole/labelled/1: sha256",
    ),
    "UPDATE trained_on SET question_id = 'whole/1/000003' WHERE question_id = 'whole/1/000000'": (
        "questions trained on",
        "whole/solver/1 trained on whole/1/000003",
    ),
    "DELETE FROM trained_on WHERE checkpoint = 'whole/solver/2'": (
        "questions trained on",
        "whole/solver/2: steps with questions",
    ),
    "DELETE FROM train_metrics WHERE iteration = 1 AND role = 'challenger' AND step = 1": (
        "training metrics",
        "train_challenger of iteration 1: steps with metrics",
    ),
    "UPDATE train_metrics SET step = 9 WHERE iteration = 2 AND name = 'labelled_kl' AND step = 4": (
        "training metrics",
        "train_labelled of iteration 2: steps with metrics",
    ),
    "DELETE FROM training_rollouts WHERE iteration = 1 AND role = 'solver' AND step = 2 AND prompt = 1": (
        "training rollouts",
        "train_solver of iteration 1, step 2: prompts with rollouts",
    ),
    "DELETE FROM training_rollouts WHERE iteration = 1 AND role = 'solver' AND step = 4 AND rollout = 2": (
        "training rollouts",
        "train_labelled of iteration 1, step 4, prompt 1: rollouts",
    ),
    "UPDATE training_rollouts SET reward = 0.5 WHERE iteration = 2 AND role = 'challenger' AND rollout = 1": (
        "training rollouts",
        "train_challenger of iteration 2, step 1, prompt 0: advantages",
    ),
    "UPDATE evaluations SET finished_at = NULL WHERE checkpoint_id = 'whole/solver/1'": (
        "evaluations",
        "evaluate of iteration 1: evaluation of whole/solver/1 on BENCHMARK",
    ),
    "UPDATE evaluated_items SET correct = 3 WHERE item_id = '0' AND evaluation_id IN "
    "(SELECT id FROM evaluations WHERE checkpoint_id = 'whole/base/0')": (
        "evaluated questions",
        "BENCHMARK, whole/base/0, question 0: correct",
    ),
    "DELETE FROM evaluated_items WHERE item_id = '1' AND evaluation_id IN "
    "(SELECT id FROM evaluations WHERE checkpoint_id = 'whole/solver/2')": (
        "evaluated questions",
        "BENCHMARK, whole/solver/2, question 1",
    ),
    "UPDATE evaluated_answers SET answer_class = 1 WHERE item_id = '0' AND sample_index = 0 AND evaluation_id IN "
    "(SELECT id FROM evaluations WHERE checkpoint_id = 'whole/labelled/2')": (
        "evaluated questions",
        "BENCHMARK, whole/labelled/2, question 0: classes of the answers",
    ),
    "UPDATE stages SET result = NULL WHERE iteration = 2 AND stage = 'check_health'": (
        "stages",
        "check_health of iteration 2",
    ),
    "UPDATE stages SET finished_at = created_at FROM runs WHERE iteration = 2 AND stage = 'audit_labels'": (
        "stages",
        "audit_labels of iteration 2",
    ),
    "DELETE FROM stages WHERE iteration = 2 AND stage = 'audit_labels'": ("stages", "check_health of iteration 2"),
    "UPDATE stages SET iteration = 3 WHERE iteration = 2 AND stage = 'evaluate_labelled'": (
        "stages",
        "evaluate_labelled of iteration 3",
    ),
    """UPDATE stages SET result = '{"kept": 9}' WHERE iteration = 1 AND stage = 'label_questions'""": (
        "filter statistics",
        "result of label_questions 1: kept",
    ),
    """UPDATE stages SET result = '{"audited": 9}' WHERE iteration = 1 AND stage = 'audit_labels'""": (
        "oracle's labels",
        "result of audit_labels 1: audited",
    ),
    """UPDATE stages SET result = '{"checkpoint": "whole/base/0"}' WHERE iteration = 1 AND stage = 'evaluate'""": (
        "evaluations",
        "result of evaluate of iteration 1: checkpoint",
    ),
    """UPDATE stages SET result = '{"checkpoint": "whole/solver/2", "items": 9}' WHERE iteration = 2
    AND stage = 'evaluate'""": ("evaluations", "result of evaluate of iteration 2: items"),
    "DELETE FROM oracle_labels WHERE question_id = 'whole/2/000001'": (
        "oracle's labels",
        "whole/2/000001: verdict of exact",
    ),
    "UPDATE checkpoints SET parent = NULL WHERE id = 'whole/challenger/2'": (
        "references",
        "checkpoints without a parent",
    ),
    "UPDATE checkpoints SET manifest = '{}' WHERE id = 'whole/challenger/1'": (
        "checkpoints",
        "whole/challenger/1: sha256 of the manifest in the row",
    ),
    "INSERT INTO checkpoints (id, run, role, iteration, step, path, sha256, manifest, parent, files_removed) "
    "SELECT 'whole/solver/3', run, role, 3, step, path, sha256, manifest, parent, files_removed FROM checkpoints "
    "WHERE id = 'whole/solver/2'": ("trained checkpoints", "whole/solver/3"),
    "DELETE FROM training_rollouts WHERE iteration = 2 AND role = 'solver' AND step = 1": (
        "training rollouts",
        "train_solver of iteration 2: steps with rollouts",
    ),
    "UPDATE evaluated_items SET greedy_correct = NOT greedy_correct WHERE item_id = '0' AND evaluation_id IN "
    "(SELECT id FROM evaluations WHERE checkpoint_id = 'whole/labelled/1')": (
        "evaluated questions",
        "BENCHMARK, whole/labelled/1, question 0: greedy_correct",
    ),
    "UPDATE evaluated_items SET majority_correct = NOT majority_correct WHERE item_id = '0' AND evaluation_id IN "
    "(SELECT id FROM evaluations WHERE checkpoint_id = 'whole/solver/1')": (
        "evaluated questions",
        "BENCHMARK, whole/solver/1, question 0: majority_correct",
    ),
    "DELETE FROM evaluated_answers WHERE item_id = '1' AND sample_index = 1 AND evaluation_id IN "
    "(SELECT id FROM evaluations WHERE checkpoint_id = 'whole/labelled/1')": (
        "evaluated questions",
        "BENCHMARK, whole/labelled/1, question 1: sample indices",
    ),
    f"INSERT INTO run_leases VALUES ('whole', '{_DEAD}', '2999-01-01 00:00:00')": ("leases", "lease on run whole"),
}


@pytest.mark.parametrize("statement", PLANTED, ids=[row for _, row in PLANTED.values()])
def test_each_change_by_hand_is_named_by_its_check(loop_home: Home, tmp_path: Path, statement: str) -> None:
    home, store = copy_of(loop_home, tmp_path)
    with store.write() as session:
        assert session.connection().exec_driver_sql(statement).rowcount > 0
    check, row = PLANTED[statement]
    row = row.replace("BENCHMARK", str(loop_home.path / "benchmark.jsonl"))
    assert [name for name, named in rows(verify_run(home, store, RUN)).items() if row in named] == [check]


def test_a_reward_that_is_not_finite_is_named(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path)
    with store.write() as session:
        first = (TrainingRollouts.iteration == 1, TrainingRollouts.step == 1, TrainingRollouts.rollout == 3)
        session.execute(update(TrainingRollouts).where(*first).values(reward=math.inf))
    named = rows(verify_run(home, store, RUN))["training rollouts"]
    assert "train_solver of iteration 1, step 1, prompt 1: rewards" in named


def test_a_run_has_no_violations_on_either_database_and_all_changes_at_once_are_named(
    store: Store, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    store_loop(store, home)
    assert rows(verify_run(home, store, RUN)) == {}
    with store.write() as session:
        for statement in PLANTED:
            session.execute(text(statement))
    named = rows(verify_run(home, store, RUN))
    assert {check for check, _ in PLANTED.values()} <= named.keys()


@pytest.mark.parametrize(
    "settings",
    [
        {"shared": True},
        {"labelled__chained": True},
        {"challenger__trained": False},
        {"rollout_text": "kept", "rollout_prompts": 0},
        {"rollout_text": "none", "dataset__denominator": "parsed"},
        {"guard__ill_posed": "roll_back"},
        {"evaluation__samples": 0, "dataset__filtered": False},
    ],
    ids=str,
)
def test_no_kind_of_loop_has_violations(sqlite: Store, tmp_path: Path, settings: dict[str, Any]) -> None:
    home = Home(tmp_path)
    store_loop(sqlite, home, **settings)
    assert rows(verify_run(home, sqlite, RUN)) == {}


def test_prompts_that_nobody_votes_on_have_no_violations(sqlite: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    store_rounds(sqlite, home, prompts__labels="none", solver__reward__labels="online")
    verification = verify_run(home, sqlite, RUN)
    assert rows(verification) == {}
    counts = {check.name: check.checked for check in verification.checks}
    assert (counts["votes"], counts["verdicts"]) == (0, 5)


def test_given_prompts_in_rounds_have_no_violations(store: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    store_rounds(store, home)
    verification = verify_run(home, store, RUN)
    assert rows(verification) == {}
    counts = {check.name: check.checked for check in verification.checks}
    assert all(counts[name] for name in ("votes", "oracle's labels", "questions trained on", "optimiser's moments"))


def rows(verification: Verification) -> dict[str, list[str]]:
    """Check -> the rows that it names; checks without violations are left out."""
    return {check.name: [row.row for row in check.violations] for check in verification.checks if check.violations}
