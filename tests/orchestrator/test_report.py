from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from core.settings.parsing import parse_config
from core.statistics.estimates import wilson, wilson_at
from services.api.run_page import write_run_page
from services.run_report.figures import figures
from services.run_report.headline import headline_of
from storage import queries
from storage.errors import StoreError
from storage.models import Stages
from storage.session import Store
from tests.orchestrator.small_run import small_run
from tests.synthetic_run import CONFIG, add_evaluations, add_solver, create, fill_run, finish, held_out, iterations

ITERATION_KEYS = {
    "t", "pass_at_1", "ci95", "n", "greedy", "maj_at_k", "pseudo_label_accuracy", "candidates", "kept", "malformed",
    "ill_posed_share", "challenger_reward", "mean_p_hat", "seconds",
}  # fmt: skip


def test_the_held_out_figures_by_hand(store: Store) -> None:
    small_run(store)
    base, first = iterations(store, "small")
    assert (base["t"], base["n"], base["k"], base["pass_at_1"], base["greedy"], base["maj_at_k"]) == (
        0, 4, 8, 0.4375, 0.5, 0.25,
    )  # fmt: skip
    # The squares of the rates 1/4, 1/2, 0, 1 around 0.4375 add up to 0.546875, of items that are 0 or 1 to 0.984375.
    assert base["ci95"] == pytest.approx(wilson_at(0.4375, 4 * 1.084375 / 0.646875, 4))
    assert base["greedy_ci95"] == pytest.approx(wilson(2, 4))
    assert base["maj_ci95"] == pytest.approx(wilson(1, 4))
    assert base["by_level"] == {"1": 0.375, "2": 0.5}
    assert (base["gain_over_base"], base["pseudo_label_accuracy"], base["candidates"]) == (None, None, None)
    assert (first["pass_at_1"], first["greedy"], first["maj_at_k"]) == (0.625, 1.0, 0.75)
    # The differences 1/4, 1/4, 1/4, 0 are (1 + d) / 2 on the scale of shares: their squares add up to 0.01171875.
    gain = first["gain_over_base"]["pass_at_1"]
    assert (gain["value"], gain["n"]) == (0.1875, 4)
    lo, hi = wilson_at(0.59375, 4 * (4 * 0.59375 * 0.40625 + 0.1) / 0.11171875, 4)
    assert gain["ci95"] == pytest.approx([2 * lo - 1, 2 * hi - 1])
    assert first["gain_over_base"]["greedy"]["value"] == 0.5
    assert (base["seconds"], first["seconds"]) == ({"evaluate": 5.0}, {"evaluate": 7.5, "audit_labels": 0.4})


def test_the_label_figures_by_hand(store: Store) -> None:
    small_run(store)
    first = iterations(store, "small")[1]
    accuracy = first["pseudo_label_accuracy"]
    assert accuracy["oracle"] == "exact"
    # The ill-posed question's label is not right.
    assert (accuracy["kept"]["value"], accuracy["kept"]["n"]) == (1 / 3, 3)
    assert accuracy["kept"]["ci95"] == pytest.approx(wilson(1, 3))
    assert (accuracy["all"]["value"], accuracy["all"]["n"]) == (0.5, 4)  # without the two questions that have no label
    assert (first["candidates"], first["asked"], first["kept"], first["malformed"]) == (8, 6, 3, 1)
    assert first["verdicts"] == {"kept": 3, "too_easy": 1, "no_majority": 2, "malformed": 1, "duplicate": 1}
    assert (first["ill_posed_share"], first["ill_posed"]["n"]) == (2 / 6, 6)
    assert first["mean_p_hat"] == pytest.approx(25 / 60)  # 5, 4, 6, 10, 0 and 0 votes of 10
    assert first["uncertainty"]["value"] == pytest.approx((1 + 0.8 + 0.8 + 0 + 0 + 0) / 6)
    assert first["p_hat_histogram"]["counts"] == [2, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1]
    assert first["p_hat_histogram"]["right"] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert first["difficulty"]["candidates"]["counts"] == {"1": 4, "2": 1}
    assert first["difficulty"]["candidates"]["mean"]["value"] == pytest.approx(1.2)
    assert first["difficulty"]["kept"]["mean"]["value"] == 1.5


def test_the_json_has_null_for_infinite_and_missing_figures(sqlite: Store) -> None:
    small_run(sqlite)
    report_json = figures(sqlite, "small")
    assert json.loads(json.dumps(report_json, allow_nan=False)) == report_json
    assert report_json["training"] == {
        "challenger": {
            "reward_mean": [[1, 1, 0.1], [1, 2, None], [1, 3, 0.3]],
            "kl": [[1, s, None] for s in (1, 2, 3)],
        },
        "solver": {},
    }
    assert iterations(sqlite, "small")[1]["challenger_reward"] == 0.3


def test_every_iteration_has_every_key(sqlite: Store) -> None:
    fill_run(sqlite, "demo", per_level=4)
    with sqlite.write() as session:
        create(session, "new")
    assert [row["t"] for row in iterations(sqlite, "demo")] == [0, 1, 2, 3]
    assert [row["t"] for row in iterations(sqlite, "new")] == [0]
    for row in iterations(sqlite, "demo") + iterations(sqlite, "new"):
        assert row.keys() >= ITERATION_KEYS
    assert figures(sqlite, "new")["state"] == "created"  # as in all views of runs


def test_an_unfinished_evaluation_gives_no_figure(sqlite: Store) -> None:
    small_run(sqlite)
    with sqlite.write() as session:
        add_solver(session, "small", 2)
        queries.ledger.claim_stage(session, run="small", iteration=2, stage="evaluate", owner="me", lease_seconds=60)
        items = held_out([8, 8], [1, 1], [1, 1])
        add_evaluations(session, checkpoint="small/solver/2", benchmark="micro", items=items)
    begun = iterations(sqlite, "small")[2]
    assert (begun["pass_at_1"], begun["gain_over_base"], begun["by_level"], begun["seconds"]) == (None, None, None, {})
    assert begun["pseudo_label_accuracy"] == {"kept": None, "all": None, "oracle": "exact", "others": {}}
    assert figures(sqlite, "small")["unfinished"] == [{"t": 2, "stage": "evaluate", "status": "running", "error": None}]


def test_an_iteration_without_a_new_solver_has_the_figures_of_the_ledger_s_checkpoint(sqlite: Store) -> None:
    small_run(sqlite)
    with sqlite.write() as session:
        finish(session, "small", 2, "evaluate", {"checkpoint": "small/base/0"}, 1)
    base, _, same = iterations(sqlite, "small")
    assert (same["checkpoint"], same["pass_at_1"]) == ("small/base/0", base["pass_at_1"])
    gain = same["gain_over_base"]["pass_at_1"]
    assert (gain["value"], gain["n"]) == (0.0, 4)
    assert gain["ci95"][0] < 0 < gain["ci95"][1]  # four questions cannot show that two Solvers are equal


@pytest.mark.parametrize("report", [figures, headline_of, lambda store, run: write_run_page(store, run, Path("never"))])
def test_an_unknown_run_is_named(sqlite: Store, report: Any) -> None:
    with pytest.raises(StoreError, match="run nobody: no such run"):
        report(sqlite, "nobody")
    assert not Path("never").exists()


def test_a_run_without_an_oracle_has_null_for_what_it_would_grade(sqlite: Store) -> None:
    tree = {**CONFIG.model_dump(), "audit": {"oracle": None}}
    tree["dataset"] = {**tree["dataset"], "filtered": False}
    small_run(sqlite, parse_config(tree, source="test"))
    first = iterations(sqlite, "small")[1]
    own = {name: first["pseudo_label_accuracy"][name] for name in ("kept", "all", "oracle")}
    assert own == {"kept": None, "all": None, "oracle": None}
    assert (first["ill_posed_share"], first["difficulty"]["kept"]) == (None, {"mean": None, "counts": {}})


def test_the_figures_say_what_was_noted_and_what_the_drift_rules_did_not_test(sqlite: Store) -> None:
    untested = "not tested for drift, because alerts.min_n asks for 100 items: held out (n = 12)"
    fill_run(sqlite, "few", per_level=2)
    with sqlite.write() as session:
        queries.run_notes.annotate(session, "few", add=["b", "a"], note="line 1\n<b>")
        key = (Stages.run == "few", Stages.iteration == 3, Stages.stage == "check_health")
        session.execute(update(Stages).where(*key).values(result={"action": "warn", "untested": untested}))
    reported = figures(sqlite, "few")
    assert (reported["tags"], reported["note"]) == (["a", "b"], "line 1\n<b>")
    assert [iteration["untested"] for iteration in iterations(sqlite, "few")] == [None, None, None, untested]
