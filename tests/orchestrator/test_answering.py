"""The answers to a benchmark are graded, compared with values by hand, and stored batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.grading.grader import Grader
from core.settings.evaluation import Benchmark, Protocol
from core.types import GREEDY, BenchmarkItem, Evaluated, evaluation_id
from orchestrator.evaluation.answering import Ask, Batches, answer_all, graded
from orchestrator.question_sets.benchmarks import LoadedBenchmark
from orchestrator.run import BATCH
from services.inference.client import Reply
from storage import queries
from storage.files.texts import TextWriter, evaluation_path, read_texts
from storage.session import Store


def reply(text: str) -> Reply:
    return Reply(text, tokens=3, finish_reason="stop", mean_entropy=0.1, entropy_error=0.0, checkpoint="r/0", seed=0)


def test_each_item_has_its_own_samples_greedy_answer_and_majority() -> None:
    items = [
        BenchmarkItem("a", "p", "1/2", "easy"),
        BenchmarkItem("b", "q", "7", None),
        BenchmarkItem("c", "r", "3", None),
    ]
    sampled = [
        # Three right answers in two spellings, which vote together: 0.5 and 1/2 have 3 of 4 votes.
        [r"\boxed{0.5}", r"\boxed{\frac{1}{2}}", r"\boxed{4}", r"\boxed{0.5}"],
        # One right answer; the majority is wrong.
        [r"\boxed{8}", r"\boxed{7}", r"\boxed{8}", "nothing"],
        # No answer, so there is no majority.
        ["", "3", "no idea", r"\boxed{"],
    ]
    greedy = [r"\boxed{4}", r"\boxed{7}", r"\boxed{3}"]
    replies = [[reply(text) for text in group] for group in [*sampled, *([text] for text in greedy)]]
    with Grader() as grader:
        evaluated, answers = graded(items, replies, grader)
    assert evaluated == [
        Evaluated("a", "easy", samples=4, correct=3, greedy_correct=False, majority_correct=True),
        Evaluated("b", None, samples=4, correct=1, greedy_correct=True, majority_correct=False),
        Evaluated("c", None, samples=4, correct=0, greedy_correct=True, majority_correct=False),
    ]
    of_b = [answer for answer in answers if answer.item_id == "b"]
    assert [(answer.sample_index, answer.answer, answer.answer_class, answer.verdict) for answer in of_b] == [
        (0, "8", 0, "unequal"),
        (1, "7", 1, "equal"),
        (2, "8", 0, "unequal"),
        (3, None, None, None),
        (GREEDY, "7", None, "equal"),
    ]
    assert [(answer.tokens, answer.finish_reason) for answer in of_b] == [(3, "stop")] * 5
    assert len(answers) == 15


def test_without_samples_the_greedy_answer_is_the_only_one() -> None:
    items = [BenchmarkItem("a", "p", "B"), BenchmarkItem("b", "q", "C")]
    replies = [[reply(r"\boxed{(B)}")], [reply(r"\boxed{none}")]]
    with Grader() as grader:
        evaluated, answers = graded(items, replies, grader, "choice")
    assert evaluated == [Evaluated("a", None, 1, 1, True, True), Evaluated("b", None, 1, 0, False, False)]
    greedy = [(answer.sample_index, answer.answer, answer.verdict) for answer in answers]
    assert greedy == [(GREEDY, "B", "equal"), (GREEDY, None, None)]


def test_a_model_that_is_not_asked_greedily_has_sampled_answers_only() -> None:
    items = [BenchmarkItem("a", "p", "2"), BenchmarkItem("b", "q", "3")]
    replies = [[reply(r"\boxed{2}"), reply(r"\boxed{2}")], [reply(r"\boxed{1}"), reply(r"\boxed{3}")]]
    with Grader() as grader:
        evaluated, answers = graded(items, replies, grader, asked_greedily=False)
    assert evaluated == [Evaluated("a", None, 2, 2, None, True), Evaluated("b", None, 2, 1, None, False)]
    assert [(answer.item_id, answer.sample_index) for answer in answers] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


class Interrupted(Exception):
    """Stands for the end of the process."""


def test_an_evaluation_that_was_cut_off_goes_on_after_its_last_batch(sqlite: Store, tmp_path: Path) -> None:
    items = tuple(BenchmarkItem(f"i{i:03d}", f"What is {i}?", str(i)) for i in range(2 * BATCH + 5))
    benchmark = LoadedBenchmark("mine", Benchmark(title="mine", source="here"), items, "sha")
    protocol, asked = Protocol(samples=2), list[int]()

    def asker(batches_until_the_end: int) -> Ask:
        @contextmanager
        def ask(batches: Batches) -> Iterator[Iterator[list[list[Reply]]]]:
            def replies() -> Iterator[list[list[Reply]]]:
                for number, prompts in enumerate(batches):
                    if number == batches_until_the_end:
                        raise Interrupted
                    asked.append(len(prompts))
                    yield [
                        [reply(rf"\boxed{{{prompt.messages[-1]['content'][8:-1]}}}")] * prompt.n for prompt in prompts
                    ]

            yield replies()

        return ask

    def evaluate(ask: Ask) -> None:
        with sqlite.write() as session:
            row = queries.evaluations.begin_evaluation(session, model="m", benchmark="mine", manifest={})
        texts = TextWriter(evaluation_path(tmp_path, row.id))
        with Grader() as grader:
            answer_all(sqlite, row, benchmark, protocol, 7, ask, grader, lambda *_: None, texts)

    with pytest.raises(Interrupted):
        evaluate(asker(1))
    key = evaluation_id("m", "mine")
    with sqlite.read() as session:
        assert len(queries.evaluations.results_of(session, key)) == BATCH
        assert queries.evaluations.get_evaluation(session, key).finished_at is None
    evaluate(asker(9))
    evaluate(asker(9))
    assert asked == [2 * BATCH, 2 * BATCH, 2 * 5]  # each question twice: sampled and greedy
    with sqlite.read() as session:
        results = queries.evaluations.results_of(session, key)
        row = queries.evaluations.get_evaluation(session, key)
        assert len(queries.evaluations.answers_of(session, key)) == 3 * len(items)
    assert row.finished_at is not None
    assert row.seconds > 0
    assert {(result.samples, result.correct, result.greedy_correct) for result in results} == {(2, 2, True)}
    texts = read_texts(evaluation_path(tmp_path, key), ["i003"])
    assert [(text.sample_index, text.text) for text in texts] == [(i, r"\boxed{3}") for i in (0, 1, GREEDY)]
