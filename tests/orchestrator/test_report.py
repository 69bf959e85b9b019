"""The figures of a report by hand, and its sentences, which match them."""

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
from services.run_report.headline import details, headline, headline_of
from services.run_report.measures import measure
from storage import queries
from storage.errors import StoreError
from storage.models import Stages
from storage.session import Store
from tests.orchestrator.small_run import small_run
from tests.synthetic_run import (
    CONFIG,
    add_evaluations,
    add_solver,
    create,
    evaluate,
    fill_run,
    finish,
    held_out,
    iterations,
    label,
    vote_of,
)

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


@pytest.mark.parametrize(
    ("correct", "greedy", "expected"),
    [
        (6, 1, "The Solver learned: +50.0"),
        (6, 0, "The Solver got surer, not better: +50.0"),
        (2, 1, "The Solver gained in greedy decoding only"),
        (2, 0, "The Solver did not learn, as far as can be told"),
        (0, 0, "The Solver did not learn, it got worse: \N{MINUS SIGN}25.0"),
    ],
)
def test_the_headline_matches_the_figures(sqlite: Store, correct: int, greedy: int, expected: str) -> None:
    with sqlite.write() as session:
        create(session, "run")
        evaluate(session, "run", 0, held_out([2] * 20, [0] * 20, [0] * 20), took=1)
        add_solver(session, "run", 1)
        evaluate(session, "run", 1, held_out([correct] * 20, [greedy] * 20, [0] * 20), took=1)
    measures = measure(sqlite, "run")
    assert expected in headline(measures).replace("\N{NO-BREAK SPACE}", " ")
    assert "20 questions" in headline(measures)


@pytest.mark.parametrize(
    ("base", "trained", "expected"),
    [
        ([1] * 20, ([7] * 20, [4] * 20), "Some of it was lost again: since iteration 1"),
        ([1] * 20, ([7] * 20, [7] * 19 + [6]), "It held, as far as can be told: since iteration 1"),
        # Not above the base model, so nothing to lose.
        ([4] * 20, ([5] + [4] * 19, [2] * 20), "Since iteration 1"),
        # Five of twenty questions have one right sample less. Chance does that in one of 32 cases, which is below 0.05
        # but not below half of it; and the best is one of three iterations.
        ([1] * 20, ([7] * 20, [6] * 20, [7] * 15 + [6] * 5), "It held, as far as can be told: since iteration 1"),
    ],
)
def test_a_fall_since_the_best_iteration_is_a_loss_only_if_the_best_had_gained(
    sqlite: Store, base: list[int], trained: tuple[list[int], ...], expected: str
) -> None:
    assert _since_best(sqlite, base, *trained).startswith(expected)
    assert figures(sqlite, "run")["best_iteration"] == int(expected[-1])


def _since_best(sqlite: Store, base: list[int], *trained: list[int]) -> str:
    """The sentence about the best of these iterations, each given as its right samples of eight of each question."""
    with sqlite.write() as session:
        create(session, "run")
        evaluate(session, "run", 0, held_out(base, [1] * 20, [0] * 20), took=1)
        for t, correct in enumerate(trained, 1):
            add_solver(session, "run", t)
            evaluate(session, "run", t, held_out(correct, [1] * 20, [1] * 20), took=1)
    [sentence] = [sentence for sentence in details(measure(sqlite, "run")) if "the best by pass@1" in sentence]
    return sentence


# The intervals of 181/196 and 167/195 are [87.72, 95.32] and [79.99, 89.90], so they overlap. Newcombe's of the
# difference: 92.35 - 85.64 = 6.71; sqrt(5.65^2 + 2.97^2) = 6.39 and sqrt(4.26^2 + 4.62^2) = 6.28.
@pytest.mark.parametrize(
    ("right", "of", "expected"),
    [
        (167, 195, "a change of −6.7 points [−13.1, −0.4]: the share fell."),
        (175, 195, "a change of −2.6 points [−8.5, +3.2]: chance alone may explain it."),
        (195, 196, "a change of +7.1 points [+3.4, +11.8]: the share rose."),
    ],
)
def test_label_accuracy_is_judged_by_the_interval_of_its_change(
    sqlite: Store, right: int, of: int, expected: str
) -> None:
    with sqlite.write() as session:
        create(session, "run")
        for t, (correct, n) in enumerate([(181, 196), (right, of)], 1):
            votes = [
                (f"What is {i} + {t}?", vote_of((str(i + t + (i >= correct)), 5), ("none of these", 3)))
                for i in range(n)
            ]
            label(session, "run", t, votes, CONFIG)
    sentences = details(measure(sqlite, "run"))
    [sentence] = [sentence for sentence in sentences if sentence.startswith("Of the kept pseudo-labels")]
    assert "92.3% [87.7, 95.3] (n = 196)" in (plain := sentence.replace("\N{NO-BREAK SPACE}", " "))
    assert plain.endswith(expected)
