"""The result of `check_health` for an iteration of a synthetic run, compared with values by hand."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.settings.config import Audit
from core.settings.parsing import parse_config
from core.statistics.guard import Guard, TrainingHistory
from core.types import Evaluated, StageKey, question_id
from orchestrator.reporting.results import stage_result
from orchestrator.stages.check_health import check_health
from orchestrator.stages.context import Context
from services.drift.series import refresh, refresh_labels
from storage import queries
from storage.rows import SampleRow
from storage.session import Store
from tests.synthetic_run import CONFIG, add_solver, context_of, create, evaluate, finish, label, stored, vote_of

SELF_TRAINED: dict[str, Any] = {"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}}


def ten_items(right: int) -> list[Evaluated]:
    return [Evaluated(f"i{i}", None, 8, 8 * (i < right), False, False) for i in range(10)]


def check_result(context: Context) -> dict[str, Any]:
    return stored(context, check_health)


def add_rounds(session: Session, run: str, settings: dict[str, Any], *right: int) -> None:
    """A run on given prompts. `right` has the number of right ones of ten held-out items for the base model and for
    each round."""
    create(session, run, parse_config({**SELF_TRAINED, **settings}, "a test"))
    for t, count in enumerate(right):
        if t:
            add_solver(session, run, t)
        evaluate(session, run, t, ten_items(count), 1)


def add_one_answer(session: Session, run: str) -> None:
    """In round 2 the Solver gives one answer to all questions."""
    metrics = {"same_label_share": 0.9, "step": 1.0}
    queries.figures.add_train_metrics(session, run=run, iteration=2, role="solver", step=1, metrics=metrics)


def go_back(session: Session, run: str, t: int, to: str) -> None:
    finish(session, run, t, "check_health", {"action": "roll_back", "back_to": {"solver": f"{run}/{to}"}}, 1)


def signals(store: Store, correct: tuple[int, int], kept_questions: int, audited: bool = True) -> dict[str, Any]:
    """The check of an iteration with ten held-out items, of which `correct` are right before and after it, and with
    `kept_questions` questions, two of them ill-posed."""
    config = CONFIG if audited else CONFIG.model_copy(update={"audit": Audit(oracle=None)})
    with store.write() as session:
        create(session, "h", config)
        add_solver(session, "h", 1)
        for t, right in enumerate(correct):
            evaluate(session, "h", t, ten_items(right), 1)
        well_posed = [(f"What is {i} + 2?", vote_of((str(i + 2), 6), ("0", 4))) for i in range(kept_questions - 2)]
        ill_posed = [(f"What is {i} + ?", vote_of(("3", 6))) for i in range(2)]
        label(session, "h", 1, [*well_posed, *ill_posed], config)
        for t in (0, 1):
            refresh(session, "h", t)
    return check_result(context_of(store, "h", 1))


def test_a_healthy_iteration_has_no_warnings_and_says_what_the_drift_rules_did_not_test(
    sqlite: Store, caplog: pytest.LogCaptureFixture
) -> None:
    result = signals(sqlite, correct=(3, 5), kept_questions=10)
    logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (result["warnings"], logged) == ([], [])
    assert result["signals"]["ill_posed_share"]["value"] == 0.2
    accuracy = result["signals"]["label_accuracy_kept"]
    assert (accuracy["value"], accuracy["n"]) == (0.8, 10)
    assert accuracy["ci95"] == pytest.approx([0.4445, 0.9632], abs=1e-4)  # 8 of 10
    assert (result["signals"]["pass_at_1"], result["signals"]["best_pass_at_1"]) == (0.5, 0.5)
    assert result["untested"].endswith("alerts.min_n asks for 100 items: held out (n = 10)")
    with sqlite.read() as session:
        line = stage_result(session, StageKey("h", 1, "check_health"), result).line
    assert line == f"no alerts; {result['untested']}; the run goes on"


def test_a_decline_and_ill_posed_questions_give_warnings(sqlite: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="orchestrator"):
        result = signals(sqlite, correct=(9, 1), kept_questions=8)
    # All eight questions that differ are wrong now: the chance of that is 2^-8. One earlier iteration has 0.05 / 10.
    decline, ill_posed = result["warnings"]
    assert re.search(r"10\.0%.*90\.0%.*10 questions.*p = 0\.004, below 0\.005", decline)
    assert re.search("25% .* ill-posed", ill_posed)
    assert (result["action"], result["back_to"]) == ("warn", None)
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [message.split(": ", 1)[0] for message in messages] == ["run h, iteration 1"] * 2


@pytest.mark.parametrize(
    ("kept", "settings", "expected"),
    [
        (100, {}, (["overconfidence"], "warn")),
        (100, {"guard": {"actions": {"overconfidence": "stop"}}}, (["overconfidence"], "stop")),
        (100, {"guard": {"actions": {"overconfidence": "ignore"}}}, ([], "ignore")),
        (99, {}, ([], "ignore")),  # too few to tell
    ],
)
def test_votes_that_agree_more_often_than_labels_are_right_are_a_sign(
    sqlite: Store, kept: int, settings: dict[str, Any], expected: tuple[list[str], str]
) -> None:
    """Six of ten votes agree on each question, and a third of the labels is right."""
    config = parse_config({**CONFIG.model_dump(mode="json"), **settings}, "a test")
    with sqlite.write() as session:
        create(session, "h", config)
        votes = [vote_of((str(i + 2 + (i % 3 > 0)), 6), ("0", 4)) for i in range(kept)]
        label(session, "h", 1, [(f"What is {i} + 2?", vote) for i, vote in enumerate(votes)], config)
        refresh(session, "h", 1)
    result = check_result(context_of(sqlite, "h", 1))
    assert ([alarm["signal"] for alarm in result["alarms"]], result["action"]) == expected
    with sqlite.read() as session:
        alerts = queries.alerts.list_alerts(session, run="h")
    of_guard = [(alert.rule, alert.series, alert.over, alert.value) for alert in alerts]
    assert of_guard == [("overconfidence", "overconfidence", "kept", pytest.approx(0.26))] * len(expected[0])


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
    """The check of the last of the rounds `right`, of which round 2 was rolled back to round 1."""
    patient = {"early_stopping": {"benchmark": "micro", "patience": 2}, "guard": {"actions": {"decline": "stop"}}}
    with store.write() as session:
        add_rounds(session, run, patient, *right)
        go_back(session, run, 2, "solver/1")
    return check_result(context_of(store, run, len(right) - 1))


def test_a_fall_that_chance_explains_is_no_decline(sqlite: Store) -> None:
    """Two of ten questions, or twenty points, with p = 1/4."""
    assert signals(sqlite, correct=(5, 3), kept_questions=10)["warnings"] == []


def test_a_rolled_back_round_does_not_count_as_the_best_for_a_decline(sqlite: Store) -> None:
    """Round 2 had 9 of 10 right but was rolled back; round 3 is as good as round 1."""
    result = after_a_roll_back(sqlite, 3, 6, 9, 6)
    # `best` is the round that the run would end with if it stopped now.
    assert (result["warnings"], result["action"], result["best"]) == ([], "ignore", 2)
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
            add_solver(session, "h", t, parent)
            for step in (1, 2):
                metrics = {"kl": t + step / 10, "response_length": 9.0}
                queries.figures.add_train_metrics(
                    session, run="h", iteration=t, role="solver", step=step, metrics=metrics
                )
        go_back(session, "h", 2, "solver/1")
        if accepted:
            finish(session, "h", 3, "ask_a_person", {"action": "warn", "back_to": None}, 1)
    before = context_of(sqlite, "h", 4).training_history()
    assert [step["kl"] for step in before.first] == [1.1, 1.2, 3.1]
    assert [step["kl"] for step in before.last] == ([] if accepted else [1.2, 3.1, 3.2])
    assert all(step.keys() == {"kl"} for step in before.first)
    assert context_of(sqlite, "h", 1).training_history() == TrainingHistory()


@pytest.mark.parametrize(("action", "best"), [("stop", "h/solver/2"), ("roll_back", "h/solver/1")])
def test_a_run_stopped_by_an_alarm_ends_with_the_best_round_and_a_rolled_back_one_with_the_round_before(
    sqlite: Store, action: str, best: str
) -> None:
    """Round 2 gives one answer to all questions and is the best; a run that goes on continues from round 1."""
    with sqlite.write() as session:
        add_rounds(session, "h", {"guard": {"actions": {"one_answer": action}, "window": 1}}, 3, 6, 9)
        add_one_answer(session, "h")
    result = check_result(context_of(sqlite, "h", 2))
    assert (result["action"], result["back_to"]) == (action, {"solver": best})


@pytest.mark.parametrize(("max_roll_backs", "expected"), [(1, "stop"), (2, "roll_back")])
def test_a_run_is_rolled_back_as_often_as_the_guard_allows_and_then_stopped(
    sqlite: Store, monkeypatch: pytest.MonkeyPatch, max_roll_backs: int, expected: str
) -> None:
    """The run has been rolled back once, in round 1; round 2 gives one answer to all questions."""
    monkeypatch.setattr(Guard, "max_roll_backs", max_roll_backs)
    with sqlite.write() as session:
        add_rounds(session, "h", {"guard": {"actions": {"one_answer": "roll_back"}, "window": 1}}, 5, 5, 5)
        go_back(session, "h", 1, "base/0")
        add_one_answer(session, "h")
    result = check_result(context_of(sqlite, "h", 2))
    limited = any("gone back 1 times" in warning for warning in result["warnings"])
    assert (result["action"], limited) == (expected, expected == "stop")
