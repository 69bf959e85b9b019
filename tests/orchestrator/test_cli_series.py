"""`coevo show series` and `coevo show alerts`, and the health check that raises alerts."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from sqlalchemy import delete, update

from core.statistics.guard import Guard, Signal
from core.types import Evaluated, StageKey
from orchestrator.installation.home import Home
from orchestrator.reporting.results import stage_result
from orchestrator.stages.check_health import check_health
from services.drift.series import refresh
from storage import queries
from storage.models import OracleLabels, Runs
from storage.session import Store
from tests.commands import coevo, json_of, refusal
from tests.synthetic_run import CONFIG, context_of, create, evaluate, fill_run, label, vote_of


@pytest.fixture
def store(home: Home, sqlite: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("COLUMNS", "200")
    fill_run(sqlite, "demo", per_level=2)
    return sqlite


def test_the_series_of_a_run_of_an_earlier_version_are_computed_on_request(store: Store) -> None:
    assert json_of("show", "series", "demo") == []
    points = json_of("show", "series", "demo", "--refresh")
    assert {point["iteration"] for point in points if point["name"] == "held_out"} == {0, 1, 2, 3}
    assert {point["iteration"] for point in points if point["name"] == "kept_share"} == {1, 2, 3}
    [accuracy] = json_of("show", "series", "demo", "--name", "label_accuracy")[:1]
    assert accuracy["lo"] < accuracy["value"] < accuracy["hi"]
    assert coevo("show", "alerts", "--json").stdout == "[]\n"  # computing series raises no alerts
    assert "label_accuracy" in coevo("show", "series", "demo").stdout


def test_a_mistyped_name_is_refused_and_a_series_without_values_is_not(store: Store) -> None:
    refused = refusal("show", "series", "demo", "--name", "label_acuracy")
    assert "--name: label_acuracy: no such series (did you mean label_accuracy?); expected one of " in refused
    assert coevo("show", "series", "demo", "--name", "label_accuracy").stdout == "label_accuracy: no values yet\n"
    assert coevo("show", "series", "demo").stdout == "figures: no values yet\n"


@pytest.mark.parametrize("audited", [1, 2])
def test_an_estimate_is_explained_and_what_it_lacks_if_one_iteration_was_audited(store: Store, audited: int) -> None:
    with store.write() as session:
        for iteration in range(audited + 1, 4):
            labels = OracleLabels.question_id.startswith(f"demo/{iteration}/")
            session.execute(delete(OracleLabels).where(labels))
    legend = "~ was not measured, but is estimated from p_hat"
    shown = coevo("show", "series", "demo", "--refresh").stdout
    assert (legend in shown, "the interval is too narrow" in shown) == (True, audited == 1)
    assert legend not in coevo("show", "series", "demo", "--name", "kept_share").stdout
    remark = "estimates from p_hat (exact, kept): calibrated on one iteration, so the interval is too narrow"
    assert (remark in coevo("show", "labels", "demo").stdout) == (audited == 1)


def test_a_replay_says_what_the_health_checks_of_the_iterations_say_and_raises_no_alert(store: Store) -> None:
    """Also where the guard ignores the signal, and from figures that are not stored."""
    ignored = {"guard": Guard(actions=dict.fromkeys(get_args(Signal), "ignore"))}
    with store.write() as session:
        session.execute(update(Runs).values(config=CONFIG.model_copy(update=ignored).model_dump(mode="json")))
        for t, step in product(range(1, 4), range(1, CONFIG.solver.training.steps + 1)):
            key = {"run": "demo", "iteration": t, "role": "solver", "step": step}
            metrics = {"step": step, "same_label_share": 0.9 if t == 2 else 0.1}
            queries.figures.add_train_metrics(session, **key, metrics=metrics)
    shown, said = coevo("show", "alerts", "demo", "--replay").stdout, json_of("show", "alerts", "demo", "--replay")
    assert json_of("show", "alerts") == json_of("show", "series", "demo") == []
    heeded = CONFIG.model_copy(update={"guard": Guard()})
    for t in range(4):
        with store.write() as session:
            refresh(session, "demo", t)
    for t in range(1, 4):
        last_write = check_health(context_of(store, "demo", t, config=heeded))
        with store.write() as session:
            last_write(session)
    checked = json_of("show", "alerts", "demo")
    assert all(alert.pop("raised_at") for alert in [*said, *checked])
    assert sorted(said, key=lambda alert: alert["id"]) == sorted(checked, key=lambda alert: alert["id"])
    assert [(alert["iteration"], alert["rule"]) for alert in said][:1] == [(2, "one_answer")]
    assert {alert["rule"] for alert in said} == {"one_answer", "sudden"}
    *table, silent = shown.splitlines()
    spoken = ("one_answer", "p_hat", "ill_posed_share")
    assert all(any(name in line for line in table) for name in spoken)
    assert silent.startswith("silent: hacking, ")
    assert set(spoken).isdisjoint(silent.removeprefix("silent: ").split(", "))
    assert "vote_entropy" in silent  # it shows that signal best, but no rule tells of it


def test_the_health_check_writes_alerts_which_can_be_acknowledged(store: Store) -> None:
    """Two of eight questions are ill-posed, more than this run's guard allows."""
    config = CONFIG.model_copy(update={"guard": Guard(actions={"ill_posed": "pause"})})
    with store.write() as session:
        create(session, "h", config)
        evaluate(session, "h", 0, [Evaluated(f"i{i}", None, 8, 4, False, False) for i in range(10)], 1)
        well_posed = [(f"What is {i} + 2?", vote_of((str(i + 2), 6), ("0", 4))) for i in range(6)]
        label(session, "h", 1, [*well_posed, *[(f"What is {i} + ?", vote_of(("3", 6))) for i in range(2)]], config)
        for t in (0, 1):
            refresh(session, "h", t)
    last_write = check_health(context_of(store, "h", 1))
    for _ in range(2):
        with store.write() as session:
            last_write(session)
    with store.read() as session:
        assert [point.iteration for point in queries.series.series_of(session, "h", "held_out")] == [0]
        [accuracy] = queries.series.series_of(session, "h", "label_accuracy", over="all")
        [alert] = queries.alerts.list_alerts(session)
        result = {"warnings": [alert.text], "action": "pause"}
        line = stage_result(session, StageKey("h", 1, "check_health"), result).line
    assert (accuracy.value, accuracy.n) == (0.75, 8)
    assert (alert.iteration, alert.rule, alert.severity, alert.value) == (1, "ill_posed", "critical", 0.25)
    assert line == f"1 critical alert; {alert.text}; the run waits for a person's decision"
    is_open = "run h has open alerts: 1 critical alert; `coevo show alerts h --open` shows them"
    assert coevo("report", "h", "--summary").stdout.splitlines()[-1] == is_open
    assert [listed["id"] for listed in json_of("show", "alerts", "h", "--open")] == [alert.id]
    assert alert.id in coevo("show", "alerts").stdout
    assert coevo("runs", "acknowledge", alert.id, "--by", "ann").stdout.startswith("acknowledged by ann: ")
    assert "ann acknowledged it at" in refusal("runs", "acknowledge", alert.id)
    assert coevo("show", "alerts", "--open", "--json").stdout == "[]\n"
    assert "open alerts" not in coevo("report", "h", "--summary").stdout
