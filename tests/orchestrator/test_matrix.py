"""`coevo show matrix`: which questions are asked, which answers are stored, and the figures made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from core.settings.parsing import parse_config
from core.statistics.audits import Stratum, stratified_share
from core.statistics.estimates import Estimate, share
from core.types import BenchmarkItem, Checkpoint, Evaluated, OracleLabel, OracleVerdict, evaluation_id
from orchestrator import runs
from orchestrator.analysis.matrix import MatrixError, ask, draw, question_sets, unanswered
from orchestrator.cli import app
from orchestrator.installation.home import Home
from orchestrator.question_sets.benchmarks import LoadedBenchmark
from services.evaluations.figures import items_of
from services.evaluations.matrix import MatrixCell, cells, mean_cells, set_name
from services.oracles.samples import draw_sample
from storage import queries
from storage.errors import NotThere
from storage.rows import Slice
from storage.session import Store
from tests.fake_applications import fake_applications
from tests.live import Live
from tests.synthetic_run import add_evaluations, context_of, create, fill_run, finish, label, vote_of

SETS = {t: set_name(t, "exact") for t in (1, 2, 3)}


def first(benchmark: LoadedBenchmark, size: int) -> LoadedBenchmark:
    """A smaller question set: the first questions of another one."""
    return replace(benchmark, items=benchmark.items[:size])


def test_a_larger_sample_contains_the_smaller_one_for_any_order_of_questions_and_name_of_run() -> None:
    items = [BenchmarkItem(f"a/1/{i:06d}", "?", "1") for i in range(500)]
    renamed = [BenchmarkItem(f"b/1/{i:06d}", "?", "1") for i in range(500)]
    small, large = draw(items, 40, 7), draw(items[::-1], 300, 7)
    assert (len({item.id for item in large}), large[:40]) == (300, small)
    assert [item.id[1:] for item in draw(renamed, 40, 7)] == [item.id[1:] for item in small]
    assert draw(items, 40, 8) != small
    assert len(draw(items, 1000, 7)) == 500


def test_every_question_is_equally_likely_to_be_drawn() -> None:
    items = [BenchmarkItem(f"a/2/{i:06d}", "?", "1") for i in range(10)]
    times = {item.id: 0 for item in items}
    for seed in range(2000):
        for item in draw(items, 3, seed):
            times[item.id] += 1
    assert all(abs(count - 600) < 5 * (2000 * 0.3 * 0.7) ** 0.5 for count in times.values())  # five standard deviations


def test_a_question_set_has_the_questions_whose_answers_the_oracle_knows(store: Store) -> None:
    with store.write() as session:
        create(session, "r")
        usable = [("What is 1 + 2?", vote_of(("3", 6), ("4", 4))), ("What is 2 + 2?", vote_of(("5", 9)))]
        unusable = [("What is 3 + + 3?", vote_of(("6", 9))), ("What is 4 + 4?", vote_of(m=10)), (None, None)]
        label(session, "r", 1, [*usable, *unusable], parse_config({}, "r"))
    with store.read() as session:
        [benchmark] = question_sets(session, "r", "exact", 200)
        assert benchmark.name == "questions/1/exact"
        asked = sorted((item.problem, item.answer) for item in benchmark.items)
        assert asked == [("What is 1 + 2?", "3"), ("What is 2 + 2?", "4")]
        for error, named, run, oracle, size in (
            (MatrixError, "size: .* got 0", "r", "exact", 0),
            (MatrixError, "oracle: .* got 'human'", "r", "human", 200),
            (NotThere, "nosuch", "nosuch", "exact", 200),
        ):
            with pytest.raises(error, match=named):
                question_sets(session, run, oracle, size)


def sampled(store: Store, size: int, *, kept_only: bool = False, ill_posed: int | None = None) -> list[str]:
    """A run of 6 kept questions (p_hat 0.5) and 12 with p_hat 0.9, of which `judge_x` grades a sample; returns its ids.

    Its second kept label is wrong, all others are right, and the one at position `ill_posed` has no answer.
    """
    with store.write() as session:
        create(session, "r")
        votes = [vote_of(("3", 5), ("4", 5))] * 6 + [vote_of(("3", 9))] * 12
        questions = [(f"What is {i} + {i + 1}?", vote) for i, vote in enumerate(votes)]
        label(session, "r", 1, questions, parse_config({}, "r"))
        finish(session, "r", 1, "label_questions", {}, 1.0)
    rows = draw_sample(store, "r", 1, "judge_x", size, kept_only=kept_only)
    kept = [row.question_id for row in rows if row.stratum.startswith("kept")]
    with store.write() as session:
        for row in rows:
            verdict: OracleVerdict = "wrong" if row.question_id in kept[1:2] else "right"
            truth: str | None = "3"
            if row.position == ill_posed:
                verdict, truth = "ill_posed", None
            graded = OracleLabel(row.question_id, "judge_x", verdict, truth)
            queries.questions.add_oracle_labels(session, [graded])
    return [row.question_id for row in rows]


def answered(store: Store, right: Callable[[BenchmarkItem], bool]) -> dict[tuple[str | None, str], Estimate]:
    """The cells after the base model has answered the questions of iteration 1."""
    with store.write() as session:
        [benchmark] = question_sets(session, "r", "judge_x", 200)
        results = [Evaluated(item.id, item.level, 1, *[right(item)] * 3) for item in benchmark.items]
        add_evaluations(session, checkpoint="r/base/0", benchmark=set_name(1, "judge_x"), items=results)
    with store.read() as session:
        return {(cell.solver, cell.over): cell.figure for cell in cells(session, "r")}


def is_easy(item: BenchmarkItem) -> bool:
    return item.level == "too_easy"


def test_the_questions_of_a_sample_are_asked_in_its_order(store: Store) -> None:
    drawn = sampled(store, 7, ill_posed=3)
    with store.read() as session:
        for size, expected in ((200, drawn[:3] + drawn[4:]), (4, [*drawn[:3], drawn[4]])):
            [benchmark] = question_sets(session, "r", "judge_x", size)
            assert [item.id for item in benchmark.items] == expected


def test_the_cells_of_a_sample_are_weighted_to_all_questions(store: Store) -> None:
    """Two of 6 kept questions and two of 12 others are drawn. The Solver has the others right, so 12 of 18 in all."""
    sampled(store, 4)
    figures = answered(store, is_easy)
    assert figures["r/base/0", "all"].value == pytest.approx(12 / 18)
    assert figures[None, "all"].value == pytest.approx((6 * 1 / 2 + 12) / 18)
    assert (figures["r/base/0", "kept"].value, figures[None, "kept"].value) == (0, 0.5)
    expected = {("r/base/0", "all"): 4, (None, "all"): 4, ("r/base/0", "kept"): 2, (None, "kept"): 2}
    assert {key: figure.n for key, figure in figures.items()} == expected
    assert figures["r/base/0", "all"] == stratified_share([Stratum(6, 2, 0), Stratum(12, 2, 2)])


def test_a_stratum_weighs_as_much_as_it_has_questions_with_a_known_answer(store: Store) -> None:
    """Of 12 easy questions three are drawn, of which one is ill-posed: so about 8 of the 12 have an answer."""
    drawn = sampled(store, 5, ill_posed=0)  # the first question is of the largest stratum
    figures = answered(store, is_easy)
    assert len(drawn) == 5
    assert figures["r/base/0", "all"].n == 4
    assert figures["r/base/0", "all"].value == pytest.approx(8 / 14)
    assert figures[None, "all"].value == pytest.approx((6 * 1 / 2 + 8) / 14)


def test_a_sample_of_everything_gives_the_plain_share(store: Store) -> None:
    sampled(store, 100)
    figures = answered(store, is_easy)
    expected = {("r/base/0", "all"): share(12, 18), (None, "all"): share(17, 18), (None, "kept"): share(5, 6)}
    for key, plain in expected.items():
        assert plain is not None
        assert (figures[key].value, figures[key].n) == (pytest.approx(plain.value), plain.n)
        assert (figures[key].lo, figures[key].hi) == (pytest.approx(plain.lo), pytest.approx(plain.hi))


def test_a_sample_of_kept_questions_has_no_cells_over_all(store: Store) -> None:
    drawn = sampled(store, 4, kept_only=True)
    figures = answered(store, lambda item: item.id == drawn[0])
    assert figures.keys() == {("r/base/0", "kept"), (None, "kept")}
    assert figures["r/base/0", "kept"] == stratified_share([Stratum(6, 4, 1)])
    assert figures[None, "kept"] == stratified_share([Stratum(6, 4, 3)])


def test_a_solver_is_asked_each_question_once_greedily_and_its_answers_are_graded(store: Store) -> None:
    fill_run(store, "r", per_level=1)
    with store.read() as session:
        sets = question_sets(session, "r", "exact", 30)
        solvers = queries.checkpoints.solvers_of(session, "r")
        before = queries.evaluations.evaluations_of(session, "r/solver/2", "micro")
    assert [solver.id for solver in solvers] == ["r/base/0", "r/solver/1", "r/solver/2", "r/solver/3"]
    items = sets[0].items
    replies = {items[0].problem: [rf"It is \boxed{{{items[0].answer}}}."], items[1].problem: [r"\boxed{1000001}"]}
    with fake_applications(replies) as (services, requests):
        context = context_of(store, "r", 0, services=services)
        ask(context, solvers[2], [first(sets[0], 10)])
        assert len(requests) == 10
        ask(context, solvers[2], sets)
        assert len(requests) == 90  # a larger set and two other sets; the ten questions are not asked again
        ask(context, solvers[2], sets)
        assert len(requests) == 90
    assert {(body["policy_version"], body["temperature"], body["n"]) for body in requests} == {("r/solver/2", 0, 1)}
    with store.read() as session:
        assert unanswered(session, "r/solver/2", sets) == []
        assert unanswered(session, "r/solver/1", sets) == sets
        evaluation = queries.evaluations.get_evaluation(session, evaluation_id("r/solver/2", SETS[1]))
        assert (evaluation.manifest["benchmark"]["questions"], evaluation.finished_at is None) == (30, False)
        assert {*items_of(session, evaluation)} == {*items}
        rows = {row.item_id: row for row in queries.evaluations.evaluations_of(session, "r/solver/2", SETS[1])}
        right = [row for row in rows.values() if row.greedy_correct]
        alike = {item.id for item in items if item.problem == items[0].problem}
        assert {row.item_id for row in right} == alike
        assert all((row.samples, row.correct, row.majority_correct) == (1, 1, True) for row in right)
        assert {rows[item.id].level for item in items} == {item.level for item in items}
        # The held-out evaluation has not changed.
        assert queries.evaluations.evaluations_of(session, "r/solver/2", "micro") == before


def test_cells_have_their_n_and_exist_for_all_and_for_kept_questions(store: Store) -> None:
    fill_run(store, "r", per_level=1)
    with store.read() as session:
        sets = question_sets(session, "r", "exact", 60)
        solvers = queries.checkpoints.solvers_of(session, "r")
        labels = {row.question_id: row for row in queries.questions.oracle_labels_of(session, "r", 2, "exact")}
    items = sets[1].items
    kept = [item for item in items if item.level == "kept"]
    assert 0 < len(kept) < 60
    replies = {item.problem: [rf"\boxed{{{item.answer}}}"] for item in kept}
    with fake_applications(replies) as (services, _):
        ask(context_of(store, "r", 0, services=services), solvers[1], [sets[1]])
    with store.read() as session:
        by_key = {(cell.questions, cell.solver, cell.over): cell.figure for cell in cells(session, "r")}
        assert {cell.oracle for cell in cells(session, "r")} == {"exact"}
    assert list(by_key) == [(2, solver, over) for over in ("all", "kept") for solver in ("r/solver/1", None)]
    over_kept, over_all = by_key[2, "r/solver/1", "kept"], by_key[2, "r/solver/1", "all"]
    assert (over_kept.value, over_kept.n) == (1, len(kept))
    assert (over_all.value, over_all.n) == (len(kept) / 60, 60)
    assert over_all.lo < over_all.value < over_all.hi
    right = sum(labels[item.id].verdict == "right" for item in items)
    assert (by_key[2, None, "all"].value, by_key[2, None, "all"].n) == (right / 60, 60)


def test_means_over_runs_have_the_interval_of_student() -> None:
    """.5, .7 and .9: their variance is .04, and that of rounding to ninths 1/972; t(.975) of two degrees of freedom is
    4.3027. A cell that one run lacks has no mean."""

    def of_run(run: str, value: float) -> list[MatrixCell]:
        places: list[tuple[str | None, Slice]] = [(f"{run}/base/0", "all"), (f"{run}/solver/1", "all"), (None, "kept")]
        return [MatrixCell("exact", 1, solver, over, Estimate(value, 0, 1, 9)) for solver, over in places]

    base, labels = mean_cells([of_run("a", 0.5), of_run("b", 0.7), [of_run("c", 0.9)[0], of_run("c", 0.9)[2]]])
    assert (base.questions, base.solver, base.over, base.figure.n) == (1, "base/0", "all", 3)
    assert (labels.solver, labels.over) == (None, "kept")
    half = 4.3027 * ((0.04 + 1 / 972) / 3) ** 0.5
    assert (base.figure.value, base.figure.lo) == pytest.approx((0.7, 0.7 - half), abs=1e-4)
    assert base.figure.hi == 1  # a share, so not 0.7 + half


def ask_all(store: Store, run: str) -> None:
    with store.read() as session:
        sets, solvers = question_sets(session, run, "exact", 4), queries.checkpoints.solvers_of(session, run)
    with fake_applications({}) as (services, _):
        for solver in solvers:
            ask(context_of(store, run, 0, services=services), solver, sets)


def test_the_command_shows_stored_answers_without_services(
    sqlite: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    fill_run(sqlite, "demo", per_level=1)

    def coevo(*arguments: str, run: str = "demo") -> tuple[int, str]:
        result = CliRunner().invoke(app, ["show", "matrix", run, "--size", "4", *arguments])
        return result.exit_code, result.output

    code, output = coevo("--ask")
    assert (code, str(home.path) in output) == (1, True)
    assert coevo()[0] == 1
    ask_all(sqlite, "demo")
    code, output = coevo("--ask")  # all answers are stored, so no service is needed
    assert code == 0
    assert [name in output for name in ("S(0), base", "S(3)", "pseudo-labels", "iteration 3")] == [True] * 4
    assert output.count(" 0.0%  n = 4 ") == 12
    shown_cells = json.loads(coevo("--json")[1])
    assert sum(cell["over"] == "all" for cell in shown_cells) == 15  # three sets, four Solvers and the labels
    assert {cell["figure"]["n"] for cell in shown_cells if cell["over"] == "all"} == {4}
    assert coevo("demo")[0] == 1
    fill_run(sqlite, "other", per_level=1)
    ask_all(sqlite, "other")
    code, output = coevo("other")
    assert (code, "means over 2 runs" in output, output.count(" 0.0% ")) == (0, True, 12)
    with sqlite.write() as session:
        newest = Checkpoint("demo/solver/4", "demo", "solver", 4, 9, "/m", "4", "demo/solver/3")
        queries.checkpoints.add_checkpoint(session, newest, {})
        queries.checkpoints.note_removed(session, [newest.id])
    code, output = coevo("--ask")  # a Solver without files is left out, so no service is needed
    assert (code, output.count(" 0.0%  n = 4 ")) == (0, 12)
    assert re.search("checkpoints.keep .*demo/solver/4", output)


def test_two_solvers_are_served_in_turn(live: Live) -> None:
    """Both checkpoints have the base model's weights, so their figures are equal."""
    store = live.store()
    config = runs.prepare(live.home, store, "matrix", "demo", 1, {}, flow="co_evolve")
    with store.write() as session:
        base = queries.checkpoints.get_checkpoint(session, "matrix/base/0")
        same = Checkpoint("matrix/solver/1", "matrix", "solver", 1, 1, base.path, base.sha256, base.id)
        queries.checkpoints.add_checkpoint(session, same, queries.checkpoints.manifest_of(session, base.id))
        questions = [(f"What is {i} + {i + 3}?", vote_of((str(2 * i + 3), 6))) for i in range(1, 31)]
        label(session, "matrix", 1, questions, config)
    result = live.coevo("show", "matrix", "matrix", "--ask", "--size", "20", "--json")
    assert result.returncode == 0, result.stderr
    base_cell, solver_cell, labels = [cell for cell in json.loads(result.stdout) if cell["over"] == "all"]
    assert base_cell["figure"] == solver_cell["figure"]
    assert (solver_cell["solver"], solver_cell["figure"]["n"], labels["solver"]) == ("matrix/solver/1", 20, None)
    assert (labels["figure"]["value"], base_cell["figure"]["value"] > 0) == (1, True)
