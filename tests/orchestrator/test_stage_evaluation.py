"""The figures that the `evaluate` stage computes from replies, compared with values by hand."""

from __future__ import annotations

from core.grading.grader import Grader
from core.types import BenchmarkItem, Evaluated
from orchestrator.stages.evaluation import graded
from services.inference.client import Reply


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
        evaluated = graded(items, replies, grader)
    assert evaluated == [
        Evaluated("a", "easy", samples=4, correct=3, greedy_correct=False, majority_correct=True),
        Evaluated("b", None, samples=4, correct=1, greedy_correct=True, majority_correct=False),
        Evaluated("c", None, samples=4, correct=0, greedy_correct=True, majority_correct=False),
    ]
