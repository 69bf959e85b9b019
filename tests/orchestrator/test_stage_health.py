"""What `check_health` says of an iteration, worked out by hand on a made-up run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from core.config import Audit, parse_config
from core.guard import Before
from core.types import Checkpoint, Evaluated, question_id
from orchestrator.home import Home, Services
from orchestrator.stages.context import Context
from orchestrator.stages.health import check_health
from storage import queries
from storage.rows import SampleRow
from storage.session import open_store
from tests.synthetic_run import CONFIG, create, evaluate, finish, label, vote_of


def signals(tmp_path: Path, correct: tuple[int, int], asked: int, audited: bool = True) -> dict[str, Any]:
    """Ten held-out items of which `correct` are right before and after, and `asked` kept questions, two ill-posed."""
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    config = CONFIG if audited else CONFIG.model_copy(update={"audit": Audit(oracle=None)})
    with store.write() as session:
        create(session, "h", config)
        queries.add_checkpoint(session, Checkpoint("h/solver/1", "h", "solver", 1, 1, "/m", "sha", "h/base/0"), {})
        for t, right in enumerate(correct):
            evaluate(
                session, "h", t, [Evaluated(f"i{i}", None, 8, 8 * (i < right), False, False) for i in range(10)], 1
            )
        well = [(f"What is {i} + 2?", vote_of((str(i + 2), 6), ("0", 4))) for i in range(asked - 2)]
        ill = [(f"What is {i} + ?", vote_of(("3", 6))) for i in range(2)]
        label(session, "h", 1, [*well, *ill], config)
    context = Context(Home(tmp_path), store, Services("", "", "", "", "", {}), "h", config, 1, lambda *_: None)
    last_write = check_health(context)
    with store.write() as session:
        found: dict[str, Any] = last_write(session)
    return found


def test_a_healthy_iteration_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = signals(tmp_path, correct=(3, 5), asked=10)
    assert (found["warnings"], [each for each in caplog.records if each.levelno >= logging.WARNING]) == ([], [])
    assert found["signals"]["ill_posed_share"]["value"] == 0.2
    accuracy = found["signals"]["label_accuracy_kept"]
    assert (accuracy["value"], accuracy["n"]) == (0.8, 10)
    assert accuracy["ci95"] == pytest.approx([0.4902, 0.9433], abs=1e-4)  # Wilson, 8 of 10
    assert (found["signals"]["pass_at_1"], found["signals"]["best_pass_at_1"]) == (0.5, 0.5)


def test_decline_and_ill_posed_questions_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="orchestrator"):
        found = signals(tmp_path, correct=(5, 4), asked=8)
    assert found["warnings"] == [
        "held-out pass@1 is 40.0%, down from 50.0%",
        "25% of the Challenger's questions are ill-posed",
    ]
    assert (found["action"], found["back_to"]) == ("warn", None)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [each.split(": ", 1)[0] for each in said] == ["run h, iteration 1"] * 2


def test_a_sample_is_weighted_to_all_pseudo_labels(tmp_path: Path) -> None:
    """90 labels of p_hat 0.6, all right, of which 10 are graded; 10 of 0.4, half of them of ill-posed questions, all
    of which are: 5 of 20 graded are ill-posed, but 5 of the 100."""
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    with store.write() as session:
        create(session, "h")
        sure = [(f"What is {i} + 2?", vote_of((str(i + 2), 6), ("0", 4))) for i in range(90)]
        unsure = [(f"What is {i} + 3?", vote_of((str(i + 3), 4), ("0", 3))) for i in range(5)]
        ill = [(f"What is {i} + ?", vote_of(("3", 4))) for i in range(5)]
        label(session, "h", 1, [*sure, *unsure, *ill], CONFIG)
        drawn = [*range(10), *range(90, 100)]
        strata = ["kept 0.6-0.8" if index < 90 else "kept 0.4-0.6" for index in drawn]
        keys = [question_id("h", 1, index) for index in drawn]
        rows = [SampleRow(keys[i], "exact", "h", 1, strata[i], i) for i in range(20)]
        queries.add_samples(session, rows)
    context = Context(Home(tmp_path), store, Services("", "", "", "", "", {}), "h", CONFIG, 1, lambda *_: None)
    last_write = check_health(context)
    with store.write() as session:
        found = last_write(session)
        series = {(p.name, p.over): p for p in queries.series_of(session, "h") if p.oracle == "exact"}
    expected = {
        "label_accuracy_kept": ("label_accuracy", "kept", 0.95),
        "ill_posed_share": ("ill_posed_share", "all", 0.05),
    }
    for signal, (name, over, value) in expected.items():
        said, point = found["signals"][signal], series[name, over]
        assert (said["value"], said["n"]) == (pytest.approx(value), 20)
        assert (said["value"], *said["ci95"]) == (point.value, point.lo, point.hi)
    assert found["warnings"] == []


def test_without_an_oracle_there_are_held_out_signals_only(tmp_path: Path) -> None:
    found = signals(tmp_path, correct=(5, 5), asked=8, audited=False)
    assert found["signals"].keys() == {"pass_at_1", "best_pass_at_1", "repetition_share"}


def after_a_roll_back(tmp_path: Path, *right: int, patience: int = 2) -> dict[str, Any]:
    """The check of the last round, where of ten held-out items so many were right, and round 2 was rolled back to 1."""
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    tree = {"prompts": {"file": "micro", "limit": 9}, "early_stopping": {"benchmark": "micro", "patience": patience}}
    config = parse_config({**tree, "solver": {"reward": {"type": "srt"}}, "guard": {"decline": "stop"}}, "a test")
    with store.write() as session:
        create(session, "h", config)
        for t, count in enumerate(right):
            if t:
                one = Checkpoint(f"h/solver/{t}", "h", "solver", t, 1, "/m", f"sha{t}", "h/base/0")
                queries.add_checkpoint(session, one, {})
            items = [Evaluated(f"i{i}", None, 8, 8 * (i < count), False, False) for i in range(10)]
            evaluate(session, "h", t, items, 1)
        finish(session, "h", 2, "check_health", {"action": "roll_back", "back_to": {"solver": "h/solver/1"}}, 1)
    last = len(right) - 1
    context = Context(Home(tmp_path), store, Services("", "", "", "", "", {}), "h", config, last, lambda *_: None)
    last_write = check_health(context)
    with store.write() as session:
        found: dict[str, Any] = last_write(session)
    return found


def test_what_was_rolled_back_is_no_peak_to_decline_from(tmp_path: Path) -> None:
    """Round 2 had 9 of 10 right while it hacked; round 3 is as good as round 1 was."""
    found = after_a_roll_back(tmp_path, 3, 6, 9, 6)
    assert (found["warnings"], found["action"], found["best"]) == ([], "ignore", 2)  # of a run that stopped now
    assert (found["signals"]["pass_at_1"], found["signals"]["best_pass_at_1"]) == (0.6, 0.6)


def test_patience_begins_anew_after_a_roll_back(tmp_path: Path) -> None:
    """Round 3 is the second after the best, and the first after the roll back; round 4 is the second."""
    assert after_a_roll_back(tmp_path / "3", 3, 6, 5, 6)["action"] == "ignore"
    found = after_a_roll_back(tmp_path / "4", 3, 6, 5, 6, 6)
    assert found["warnings"] == ["no better Solver for 2 iterations by micro: the best is iteration 1"]
    assert (found["action"], found["back_to"]) == ("stop", {"solver": "h/solver/1"})


def test_a_run_that_stops_ends_with_the_best_also_where_it_had_gone_back_from_it(tmp_path: Path) -> None:
    found = after_a_roll_back(tmp_path, 3, 6, 9, 6, 6)
    assert (found["action"], found["best"], found["back_to"]) == ("stop", 2, {"solver": "h/solver/2"})


@pytest.mark.parametrize("asked", [False, True])
def test_the_guard_watches_the_steps_that_led_to_a_round(tmp_path: Path, asked: bool) -> None:
    """Round 2 was left for round 1's Solver; where a person let round 3 go on, its steps are not held against it."""
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    tree = {"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}, "guard": {"window": 3}}
    config = parse_config(tree, "a test")
    with store.write() as session:
        create(session, "h", config)
        for t, parent in ((1, "h/base/0"), (2, "h/solver/1"), (3, "h/solver/1")):
            queries.add_checkpoint(session, Checkpoint(f"h/solver/{t}", "h", "solver", t, 1, "/m", f"{t}", parent), {})
            for step in (1, 2):
                metrics = {"kl": t + step / 10, "response_length": 9.0}
                queries.add_train_metrics(session, run="h", iteration=t, role="solver", step=step, metrics=metrics)
        finish(session, "h", 2, "check_health", {"action": "roll_back", "back_to": {"solver": "h/solver/1"}}, 1)
        if asked:
            finish(session, "h", 3, "ask_a_person", {"action": "warn", "back_to": None}, 1)
    services = Services("", "", "", "", "", {})
    before = Context(Home(tmp_path), store, services, "h", config, 4, lambda *_: None).before()
    assert [step["kl"] for step in before.first] == [1.1, 1.2, 3.1]
    assert [step["kl"] for step in before.last] == ([] if asked else [1.2, 3.1, 3.2])
    assert all(step.keys() == {"kl"} for step in before.first)
    assert Context(Home(tmp_path), store, services, "h", config, 1, lambda *_: None).before() == Before()


def test_a_run_that_stops_ends_with_the_best_and_one_that_goes_on_leaves_the_alarm(tmp_path: Path) -> None:
    """Round 2 gives one answer to all and is the best that there was; what goes on does so from round 1."""
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    tree = {"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}}
    for action, best in (("stop", "h/solver/2"), ("roll_back", "h/solver/1")):
        config = parse_config({**tree, "guard": {"one_answer": action, "window": 1, "max_roll_backs": 9}}, "a test")
        run = f"h{action[0]}"
        with store.write() as session:
            create(session, run, config)
            for t, count in enumerate((3, 6, 9)):
                if t:
                    one = Checkpoint(f"{run}/solver/{t}", run, "solver", t, 1, "/m", f"{run}{t}", f"{run}/base/0")
                    queries.add_checkpoint(session, one, {})
                items = [Evaluated(f"i{i}", None, 8, 8 * (i < count), False, False) for i in range(10)]
                evaluate(session, run, t, items, 1)
            metrics = {"same_label_share": 0.9, "step": 1.0}
            queries.add_train_metrics(session, run=run, iteration=2, role="solver", step=1, metrics=metrics)
        context = Context(Home(tmp_path), store, Services("", "", "", "", "", {}), run, config, 2, lambda *_: None)
        last_write = check_health(context)
        with store.write() as session:
            found: dict[str, Any] = last_write(session)
        assert (found["action"], found["back_to"]) == (action, {"solver": best.replace("h/", f"{run}/")})


@pytest.mark.parametrize(("max_roll_backs", "expected"), [(1, "stop"), (2, "roll_back")])
def test_a_run_goes_back_as_often_as_it_may(tmp_path: Path, max_roll_backs: int, expected: str) -> None:
    """It has gone back once, in round 1; round 2 gives one answer to all."""
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    tree = {"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}}
    guard = {"one_answer": "roll_back", "window": 1, "max_roll_backs": max_roll_backs}
    config = parse_config({**tree, "guard": guard}, "a test")
    with store.write() as session:
        create(session, "h", config)
        for t in (1, 2):
            queries.add_checkpoint(
                session, Checkpoint(f"h/solver/{t}", "h", "solver", t, 1, "/m", f"{t}", "h/base/0"), {}
            )
        for t in (0, 1, 2):
            evaluate(session, "h", t, [Evaluated(f"i{i}", None, 8, 4, False, False) for i in range(10)], 1)
        finish(session, "h", 1, "check_health", {"action": "roll_back", "back_to": {"solver": "h/base/0"}}, 1)
        metrics = {"same_label_share": 0.9, "step": 1.0}
        queries.add_train_metrics(session, run="h", iteration=2, role="solver", step=1, metrics=metrics)
    last_write = check_health(
        Context(Home(tmp_path), store, Services("", "", "", "", "", {}), "h", config, 2, lambda *_: None)
    )
    with store.write() as session:
        result = last_write(session)
    limit = "the run has gone back 1 times already, as often as guard.max_roll_backs lets it"
    assert (result["action"], limit in result["warnings"]) == (expected, expected == "stop")
