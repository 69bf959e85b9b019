"""Evaluations: what was asked, the answers, and sums of the results."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from store_examples import fresh_run, reads, writes

from core.statistics.estimates import mean_share, share
from core.types import GREEDY, BenchmarkItem, Evaluated, EvaluatedAnswer, JudgedAnswer, evaluation_id
from storage import queries
from storage.errors import NotThere
from storage.models import Evaluations
from storage.queries.evaluations import EvaluationSums
from storage.queries.tables import insert_new
from storage.session import Store
from tests.synthetic_run import add_evaluations


def evaluated(store: Store, **items: list[Evaluated]) -> tuple[str, str]:
    """A run, and its base, which was evaluated on these items by benchmark."""
    run = fresh_run(store)
    with store.write() as session:
        for benchmark, of_benchmark in items.items():
            add_evaluations(session, checkpoint=f"{run}/base/0", benchmark=benchmark, items=of_benchmark)
    return run, f"{run}/base/0"


def test_evaluations_are_read_by_checkpoint_and_benchmark(store: Store) -> None:
    items = [Evaluated("b", "2", 8, 3, True, False), Evaluated("a", None, 8, 0, False, True)]
    run, base = evaluated(store, other=items[:1], micro=items)
    assert reads(store).evaluations.evaluations_of(base, "micro") == items[::-1]
    assert reads(store).evaluations.evaluations_of(base, "other") == items[:1]
    assert reads(store).evaluations.evaluations_of(f"{run}/solver/1", "micro") == []
    assert reads(store).evaluations.evaluated(run) == [(base, "micro"), (base, "other")]


def test_all_evaluations_are_listed_however_many_there_are(store: Store) -> None:
    """The list ended after 1,000 of them, without a word."""
    with store.write() as session:
        first = queries.evaluations.begin_evaluation(session, model="/m", benchmark="micro", manifest={})
        before = len(queries.evaluations.list_evaluations(session))
        insert_new(session, Evaluations, ({**asdict(first), "id": f"{number:016x}"} for number in range(1_001)))
        assert len(queries.evaluations.list_evaluations(session)) == before + 1_001


def test_evaluation_sums_are_those_of_a_run_s_own_evaluations(store: Store) -> None:
    items = [Evaluated("b", "2", 8, 2, True, False), Evaluated("a", None, 8, 4, True, True)]
    run, checkpoint = evaluated(store, other=items[:1], micro=items)
    # A person evaluated the same checkpoint in another way; the run's figures do not change.
    names = {"model": checkpoint, "checkpoint": checkpoint, "benchmark": "micro", "protocol": ["32 samples"]}
    apart = writes(store).evaluations.begin_evaluation(manifest={}, **names)
    writes(store).evaluations.add_results(apart.id, items[:1])
    assert reads(store).evaluations.evaluation_sums(run) == [
        EvaluationSums(checkpoint, "micro", 8, mean_share([0.25, 0.5]), share(2, 2), share(1, 2)),
        EvaluationSums(checkpoint, "other", 8, mean_share([0.25]), share(1, 1), share(0, 1)),
    ]
    assert reads(store).evaluations.evaluation_sums("another") == []
    assert [row.id for row in reads(store).evaluations.list_evaluations() if row.model == checkpoint] == [apart.id]


def test_questions_without_a_greedy_answer_are_not_counted_in_greedy_accuracy(store: Store) -> None:
    items = [Evaluated("a", None, 8, 4, None, True), Evaluated("b", None, 8, 4, True, True)]
    run, _ = evaluated(store, some=items, none=items[:1])
    none, some = reads(store).evaluations.evaluation_sums(run)
    assert (some.greedy, some.majority) == (share(1, 1), share(2, 2))
    assert (none.greedy, none.accuracy, none.majority) == (None, None, share(1, 1))


def test_the_questions_of_a_run_s_evaluation_are_answered_right_greedily_or_by_majority(store: Store) -> None:
    run = fresh_run(store)
    base, asked = f"{run}/base/0", {"benchmark": {"sha256": f"sha of {run}"}}
    items = [BenchmarkItem(name, f"question {name}", "1", None, None) for name in "abcde"]
    names = {"run": run, "model": base, "checkpoint": base, "benchmark": "micro"}
    key = writes(store).evaluations.begin_evaluation(manifest=asked, **names).id
    right = {"a": (True, False), "b": (False, True), "c": (None, True), "d": (None, False)}  # greedily, by majority
    writes(store).evaluations.add_results(key, [Evaluated(name, None, 4, 2, *of) for name, of in right.items()])
    assert reads(store).evaluations.problems_answered(base, "micro") == []  # the questions are not stored
    for sha256, of_benchmark in ((f"sha of {run}", items), ("another", [BenchmarkItem("a", "other", "1", None, None)])):
        writes(store).evaluations.add_benchmark_items(sha256, of_benchmark)
    expected = {"question a": True, "question b": True, "question c": True, "question d": False}
    assert dict(reads(store).evaluations.problems_answered(base, "micro")) == expected
    assert reads(store).evaluations.problems_answered(base, "other") == []
    base = evaluated(store, micro=[Evaluated("a", None, 4, 2, True, True)])[1]  # it is not stored what was asked
    assert reads(store).evaluations.problems_answered(base, "micro") == []


def test_equal_results_have_equal_sums(store: Store) -> None:
    """As floats, 3/10 + 0/10 is less than 1/10 + 2/10, so the later of two equal iterations would be the better one."""
    of_one, of_other = (
        [Evaluated(f"{i}", None, 10, right, False, False) for i, right in enumerate(counts)]
        for counts in ((3, 0), (1, 2))
    )
    run, _ = evaluated(store, one=of_one, other=of_other)
    one, other = reads(store).evaluations.evaluation_sums(run)
    assert one.pass_at_1.value == other.pass_at_1.value == 0.15
    assert one.pass_at_1.hi > other.pass_at_1.hi  # the shares of one are further apart


def test_an_evaluation_that_is_not_finished_has_no_sums(store: Store, run: str) -> None:
    """Its first questions may be the easy ones: it would look better than it is."""
    checkpoint = f"{run}/base/0"
    names = {"model": checkpoint, "checkpoint": checkpoint, "benchmark": "micro", "run": run}
    key = writes(store).evaluations.begin_evaluation(manifest={}, **names).id
    writes(store).evaluations.add_results(key, [Evaluated("easy", "1", 8, 8, True, True)])
    assert writes(store).evaluations.evaluation_sums(run) == []
    writes(store).evaluations.finish_evaluation(key)
    assert [row.pass_at_1.n for row in writes(store).evaluations.evaluation_sums(run)] == [1]


def test_an_evaluation_goes_on_with_its_manifest_time_and_answers(store: Store) -> None:
    names = {"model": f"http://{fresh_run(store)}/v1", "benchmark": "aime24", "protocol": ["sha", 2, 0.6]}
    answers = [
        EvaluatedAnswer("i", GREEDY, None, None, None, 40, "length"),
        EvaluatedAnswer("i", 0, "7", 0, "equal", 9, "stop"),
        EvaluatedAnswer("i", 1, r"\frac12", 1, "unknown", 11, "stop"),
    ]
    first = writes(store).evaluations.begin_evaluation(manifest={"seed": 1}, **names)
    writes(store).evaluations.add_results(first.id, [Evaluated("i", None, 2, 1, False, True)], answers, seconds=1.5)
    again = writes(store).evaluations.begin_evaluation(manifest={"seed": 2}, **names)
    # A batch that is written a second time after a crash changes nothing but the time.
    writes(store).evaluations.add_results(again.id, [Evaluated("i", None, 2, 0, False, False)], answers, seconds=1)
    writes(store).evaluations.finish_evaluation(again.id)
    row, key = reads(store).evaluations.get_evaluation(first.id), (names["model"], names["benchmark"])
    assert (row.id, row.manifest) == (evaluation_id(*key, *names["protocol"]), {"seed": 1})
    assert (row.seconds, row.run) == (2.5, None)
    assert row.finished_at is not None
    assert row.finished_at >= row.created_at
    assert reads(store).evaluations.results_of(row.id) == [Evaluated("i", None, 2, 1, False, True)]
    assert reads(store).evaluations.answers_of(row.id) == answers
    assert reads(store).evaluations.results_of(row.id, after="i") == []
    assert reads(store).evaluations.answers_of(row.id, ["another"]) == []
    with pytest.raises(NotThere, match="evaluation x: "):
        reads(store).evaluations.get_evaluation("x")


def test_each_judge_has_one_verdict_on_an_answer_and_the_first_stays(store: Store) -> None:
    first = [JudgedAnswer("b", GREEDY, "judge_m", "right"), JudgedAnswer("a", 0, "judge_m", "unknown")]
    later = [JudgedAnswer("b", GREEDY, "judge_m", "wrong"), JudgedAnswer("b", GREEDY, "judge", "wrong")]
    key = evaluation_id(evaluated(store, micro=[])[1], "micro")
    for judged in (first, later):
        writes(store).evaluations.add_judged(key, judged)
    assert reads(store).evaluations.judged_of(key) == [first[1], later[1], first[0]]
    assert reads(store).evaluations.judged_of(key, ["a"]) == [first[1]]
    assert reads(store).evaluations.judged_of("another") == []


def test_the_questions_of_a_benchmark_are_stored_once_in_their_order(store: Store) -> None:
    items = [BenchmarkItem("b", "1 + 1?", "2", "easy", "sums"), BenchmarkItem("a", "2 + 2?", "4")]
    for _ in range(2):
        writes(store).evaluations.add_benchmark_items("sha", items)
    assert reads(store).evaluations.benchmark_items("sha") == items
    assert reads(store).evaluations.benchmark_items("sha", ["a", "c"]) == items[1:]
    assert reads(store).evaluations.benchmark_items("another") == []
