"""The result of `check_health` for an iteration of a synthetic run, compared with values by hand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from core.settings.config import Audit
from core.settings.parsing import parse_config
from core.statistics.guard import Guard, TrainingHistory
from core.types import Checkpoint, Evaluated, StageKey, question_id
from orchestrator.reporting.results import stage_result
from orchestrator.stages.check_health import check_health
from orchestrator.stages.context import Context
from services.drift.series import refresh, refresh_labels
from storage import queries
from storage.rows import SampleRow
from storage.session import Store
from tests.synthetic_run import CONFIG, context_of, create, evaluate, finish, label, vote_of

SELF_TRAINED: dict[str, Any] = {"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}}


def solver(run: str, t: int, parent: str) -> Checkpoint:
    return Checkpoint(f"{run}/solver/{t}", run, "solver", t, 1, "/m", f"{run}{t}", f"{run}/{parent}")


def ten_items(right: int) -> list[Evaluated]:
    return [Evaluated(f"i{i}", None, 8, 8 * (i < right), False, False) for i in range(10)]


def check_result(context: Context) -> dict[str, Any]:
    """Run `check_health`; returns the result that it stores."""
    last_write = check_health(context)
    with context.store.write() as session:
        return dict(last_write(session))


def signals(store: Store, correct: tuple[int, int], kept_questions: int, audited: bool = True) -> dict[str, Any]:
    """The check of an iteration with ten held-out items, of which `correct` are right before and after it, and with
    `kept_questions` questions, two of them ill-posed."""
    config = CONFIG if audited else CONFIG.model_copy(update={"audit": Audit(oracle=None)})
    with store.write() as session:
        create(session, "h", config)
        queries.checkpoints.add_checkpoint(session, solver("h", 1, "base/0"), {})
        for t, right in enumerate(correct):
            evaluate(session, "h", t, ten_items(right), 1)
        well_posed = [(f"What is {i} + 2?", vote_of((str(i + 2), 6), ("0", 4))) for i in range(kept_questions - 2)]
        ill_posed = [(f"What is {i} + ?", vote_of(("3", 6))) for i in range(2)]
        label(session, "h", 1, [*well_posed, *ill_posed], config)
        for t in (0, 1):
            refresh(session, "h", t)
    return check_result(context_of(store, "h", 1))


def test_a_healthy_iteration_has_no_warnings(sqlite: Store, caplog: pytest.LogCaptureFixture) -> None:
    result = signals(sqlite, correct=(3, 5), kept_questions=10)
    logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (result["warnings"], logged) == ([], [])
    assert result["signals"]["ill_posed_share"]["value"] == 0.2
    accuracy = result["signals"]["label_accuracy_kept"]
    assert (accuracy["value"], accuracy["n"]) == (0.8, 10)
    assert accuracy["ci95"] == pytest.approx([0.4445, 0.9632], abs=1e-4)  # 8 of 10
    assert (result["signals"]["pass_at_1"], result["signals"]["best_pass_at_1"]) == (0.5, 0.5)


def test_a_decline_and_ill_posed_questions_give_warnings(sqlite: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="orchestrator"):
        result = signals(sqlite, correct=(9, 1), kept_questions=8)
    # All eight questions that differ are wrong now: the chance of that is 2^-8. One earlier iteration has 0.05 / 10.
    assert result["warnings"] == [
        "pass@1 is 10.0%, down from 90.0% on the same 10 questions; chance explains such a fall with p = 0.004, below "
        "0.005",
        "25% of the Challenger's questions are ill-posed",
    ]
    assert (result["action"], result["back_to"]) == ("warn", None)
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [message.split(": ", 1)[0] for message in messages] == ["run h, iteration 1"] * 2


def test_a_sample_is_weighted_to_all_pseudo_labels(sqlite: Store) -> None:
    """Ten of 90 labels with p_hat 0.6 are graded, and all are right. All ten labels with p_hat 0.4 are graded, half of
    them of ill-posed questions. So 5 of 20 graded labels are of ill-posed questions, but only 5 of all 100."""
    with sqlite.write() as session:
        create(session, "h")
        sure = [(f"What is {i} + 2?", vote_of((str(i + 2), 6), ("0", 4))) for i in range(90)]
        unsure = [(f"What is {i} + 3?", vote_of((str(i + 3), 4), ("0", 3))) for i in range(5)]
        ill_posed = [(f"What is {i} + ?", vote_of(("3", 4))) for i in range(5)]
        label(session, "h", 1, [*sure, *unsure, *ill_posed], CONFIG)
        drawn = [*range(10), *range(90, 100)]
        strata = ["kept 0.6-0.8" if index < 90 else "kept 0.4-0.6" for index in drawn]
        keys = [question_id("h", 1, index) for index in drawn]
        rows = [SampleRow(keys[i], "exact", "h", 1, strata[i], i) for i in range(20)]
        queries.audits.add_samples(session, rows)
        refresh_labels(session, "h", 1)
    result = check_result(context_of(sqlite, "h", 1))
    with sqlite.read() as session:
        series = {(p.name, p.over): p for p in queries.series.series_of(session, "h") if p.oracle == "exact"}
    expected = {
        "label_accuracy_kept": ("label_accuracy", "kept", 0.95),
        "ill_posed_share": ("ill_posed_share", "all", 0.05),
    }
    for signal, (name, over, value) in expected.items():
        shown, point = result["signals"][signal], series[name, over]
        assert (shown["value"], shown["n"]) == (pytest.approx(value), 20)
        assert (shown["value"], *shown["ci95"]) == (point.value, point.lo, point.hi)
    assert result["warnings"] == []


def test_without_an_oracle_there_are_held_out_signals_only(sqlite: Store) -> None:
    result = signals(sqlite, correct=(5, 5), kept_questions=8, audited=False)
    assert result["signals"].keys() == {"pass_at_1", "best_pass_at_1", "repetition_share"}


def after_a_roll_back(store: Store, *right: int, run: str = "h") -> dict[str, Any]:
    """The check of the last round of a run whose round 2 was rolled back to round 1; `right` has the number of right
    ones of ten held-out items for the base model and for each round."""
    patient = {"early_stopping": {"benchmark": "micro", "patience": 2}, "guard": {"actions": {"decline": "stop"}}}
    with store.write() as session:
        create(session, run, parse_config({**SELF_TRAINED, **patient}, "a test"))
        for t, count in enumerate(right):
            if t:
                queries.checkpoints.add_checkpoint(session, solver(run, t, "base/0"), {})
            evaluate(session, run, t, ten_items(count), 1)
        finish(session, run, 2, "check_health", {"action": "roll_back", "back_to": {"solver": f"{run}/solver/1"}}, 1)
    return check_result(context_of(store, run, len(right) - 1))


def test_a_fall_that_chance_explains_is_no_decline(sqlite: Store) -> None:
    """Two of ten questions, or twenty points, with p = 1/4."""
    assert signals(sqlite, correct=(5, 3), kept_questions=10)["warnings"] == []


def test_what_the_drift_rules_do_not_test_is_said(sqlite: Store) -> None:
    result = signals(sqlite, correct=(3, 5), kept_questions=10)
    assert result["untested"].endswith("alerts.min_n asks for 100 items: held out (n = 10)")
    with sqlite.read() as session:
        line = stage_result(session, StageKey("h", 1, "check_health"), result).line
    assert line == f"no alerts; {result['untested']}; the run goes on"


def test_a_rolled_back_round_does_not_count_as_the_best_for_a_decline(sqlite: Store) -> None:
    """Round 2 had 9 of 10 right but was rolled back; round 3 is as good as round 1."""
    result = after_a_roll_back(sqlite, 3, 6, 9, 6)
    # `best` is the round that the run would end with if it stopped now.
    assert (result["warnings"], result["action"], result["best"]) == (
        [],
        "ignore",
        2,
    )
    assert (result["signals"]["pass_at_1"], result["signals"]["best_pass_at_1"]) == (0.6, 0.6)


def test_patience_begins_anew_after_a_roll_back(sqlite: Store) -> None:
    """Round 3 is the second after the best, and the first after the roll back; round 4 is the second."""
    assert after_a_roll_back(sqlite, 3, 6, 5, 6, run="g")["action"] == "ignore"
    result = after_a_roll_back(sqlite, 3, 6, 5, 6, 6)
    assert result["warnings"] == ["no better Solver for 2 iterations on micro: the best is iteration 1"]
    assert (result["action"], result["back_to"]) == ("stop", {"solver": "h/solver/1"})


def test_a_run_that_stops_ends_with_the_best_round_even_if_that_was_rolled_back(sqlite: Store) -> None:
    result = after_a_roll_back(sqlite, 3, 6, 9, 6, 6)
    assert (result["action"], result["best"], result["back_to"]) == ("stop", 2, {"solver": "h/solver/2"})


@pytest.mark.parametrize("accepted", [False, True])
def test_the_guard_s_history_has_the_steps_that_led_to_a_round(sqlite: Store, accepted: bool) -> None:
    """Round 2 was rolled back to round 1's Solver; where a person has accepted round 3, the guard ignores its steps."""
    with sqlite.write() as session:
        create(session, "h", parse_config({**SELF_TRAINED, "guard": {"window": 3}}, "a test"))
        for t, parent in ((1, "base/0"), (2, "solver/1"), (3, "solver/1")):
            queries.checkpoints.add_checkpoint(session, solver("h", t, parent), {})
            for step in (1, 2):
                metrics = {"kl": t + step / 10, "response_length": 9.0}
                queries.figures.add_train_metrics(
                    session, run="h", iteration=t, role="solver", step=step, metrics=metrics
                )
        finish(session, "h", 2, "check_health", {"action": "roll_back", "back_to": {"solver": "h/solver/1"}}, 1)
        if accepted:
            finish(session, "h", 3, "ask_a_person", {"action": "warn", "back_to": None}, 1)
    before = context_of(sqlite, "h", 4).training_history()
    assert [step["kl"] for step in before.first] == [1.1, 1.2, 3.1]
    assert [step["kl"] for step in before.last] == ([] if accepted else [1.2, 3.1, 3.2])
    assert all(step.keys() == {"kl"} for step in before.first)
    assert context_of(sqlite, "h", 1).training_history() == TrainingHistory()


def test_a_run_stopped_by_an_alarm_ends_with_the_best_round_and_a_rolled_back_one_with_the_round_before(
    sqlite: Store,
) -> None:
    """Round 2 gives one answer to all questions and is the best; a run that goes on continues from round 1."""
    for action, best in (("stop", "h/solver/2"), ("roll_back", "h/solver/1")):
        run, guard = f"h{action[0]}", {"actions": {"one_answer": action}, "window": 1}
        with sqlite.write() as session:
            create(session, run, parse_config({**SELF_TRAINED, "guard": guard}, "a test"))
            for t, count in enumerate((3, 6, 9)):
                if t:
                    queries.checkpoints.add_checkpoint(session, solver(run, t, "base/0"), {})
                evaluate(session, run, t, ten_items(count), 1)
            metrics = {"same_label_share": 0.9, "step": 1.0}
            queries.figures.add_train_metrics(session, run=run, iteration=2, role="solver", step=1, metrics=metrics)
        result = check_result(context_of(sqlite, run, 2))
        assert (result["action"], result["back_to"]) == (action, {"solver": best.replace("h/", f"{run}/")})


@pytest.mark.parametrize(("max_roll_backs", "expected"), [(1, "stop"), (2, "roll_back")])
def test_a_run_is_rolled_back_as_often_as_the_guard_allows_and_then_stopped(
    sqlite: Store, monkeypatch: pytest.MonkeyPatch, max_roll_backs: int, expected: str
) -> None:
    """The run has been rolled back once, in round 1; round 2 gives one answer to all questions."""
    monkeypatch.setattr(Guard, "max_roll_backs", max_roll_backs)
    guard = {"actions": {"one_answer": "roll_back"}, "window": 1}
    with sqlite.write() as session:
        create(session, "h", parse_config({**SELF_TRAINED, "guard": guard}, "a test"))
        for t in (0, 1, 2):
            if t:
                queries.checkpoints.add_checkpoint(session, solver("h", t, "base/0"), {})
            evaluate(session, "h", t, ten_items(5), 1)
        finish(session, "h", 1, "check_health", {"action": "roll_back", "back_to": {"solver": "h/base/0"}}, 1)
        metrics = {"same_label_share": 0.9, "step": 1.0}
        queries.figures.add_train_metrics(session, run="h", iteration=2, role="solver", step=1, metrics=metrics)
    result = check_result(context_of(sqlite, "h", 2))
    at_its_limit = any("gone back 1 times" in warning for warning in result["warnings"])
    assert (result["action"], at_its_limit) == (expected, expected == "stop")
