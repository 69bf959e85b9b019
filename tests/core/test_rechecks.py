"""A judge's recheck of an evaluation, with figures worked out by hand.

Three questions are sampled four times. What the grader calls right is in capitals, and - is no answer:
a: A A A x, greedily A; b: y B y y, greedily B; c: z z - -, greedily w. By the grader pass@1 is (3/4 + 1/4 + 0) / 3, and
greedy accuracy 2/3. There are six different answers, of which two pass.
"""

from __future__ import annotations

import pytest

from core.statistics.rechecks import Recheck, Recount, recheck_of
from core.types import GREEDY, Evaluated, EvaluatedAnswer, OracleVerdict

GIVEN = {"a": "AAAAx", "b": "ByByy", "c": "wzz--"}  # the greedy answer first
RESULTS = [
    Evaluated("a", None, 4, 3, True, True),
    Evaluated("b", None, 4, 1, True, False),
    Evaluated("c", None, 4, 0, False, False),
]
SAID: dict[str, OracleVerdict] = {"A": "right", "x": "right", "y": "wrong", "B": "wrong", "z": "unknown", "w": "right"}


def answer_to(item: str, index: int, text: str) -> EvaluatedAnswer:
    verdict = None if text == "-" else "equal" if text.isupper() else "unequal"
    return EvaluatedAnswer(item, index, None if text == "-" else text, None, verdict, 1, "stop")


ANSWERS = [answer_to(item, index, text) for item, texts in GIVEN.items() for index, text in enumerate(texts, GREEDY)]


def recheck(verdict_by_answer: dict[str, OracleVerdict], answers: list[EvaluatedAnswer] | None = None) -> Recheck:
    answers = ANSWERS if answers is None else answers
    known = [(answer, verdict_by_answer.get(answer.answer or "")) for answer in answers]
    verdicts = {(answer.item_id, answer.sample_index): verdict for answer, verdict in known if verdict is not None}
    return recheck_of("judge_m", RESULTS, answers, verdicts)


def values(recount: Recount | None) -> tuple[float, float] | None:
    return recount and (recount.pass_at_1.value, recount.greedy.value)


def test_a_whole_recheck_by_hand() -> None:
    result = recheck(SAID)
    assert (result.judge, result.answers, result.judged, result.unclear) == ("judge_m", 6, 6, 1)
    # By grader or judge: a 4 of 4, b 1 of 4, c none: z is unclear. Greedily all three.
    assert values(result.failures_rechecked) == (pytest.approx((1 + 1 / 4) / 3), 1)
    # By the judge alone b has no right answer; z keeps the grader's verdict.
    assert values(result.judge_alone) == (pytest.approx(1 / 3), 2 / 3)
    assert result.failures_rechecked.pass_at_1.n == result.failures_rechecked.greedy.n == 3
    shares = [result.passes_called_wrong, result.failures_called_right, result.disagreements]
    # B of A, B; x and w of x, y, w; and all of these. The interval of 1 of 2 is 1/2 -+ sqrt(c / (2 + c)) / 2 with
    # c = 12.7062², unless Clopper and Pearson's lower limit for few successes is below it.
    assert [(share.value, share.n) for share in shares if share] == [(1 / 2, 2), (2 / 3, 3), (3 / 5, 5)]
    assert result.passes_called_wrong.lo == pytest.approx(0.5 - 0.5 * (161.447 / 163.447) ** 0.5, abs=1e-5)


def test_a_pass_without_a_clear_verdict_stays_one() -> None:
    result = recheck({**SAID, "A": "unknown", "B": "unknown"})
    assert values(result.judge_alone) == values(result.failures_rechecked)
    assert (result.unclear, result.passes_called_wrong) == (3, None)


def test_failures_alone_give_no_figure_by_the_judge_alone() -> None:
    result = recheck({text: verdict for text, verdict in SAID.items() if text.islower()})
    assert (result.answers, result.judged, result.unclear) == (6, 4, 1)
    assert values(result.failures_rechecked) == (pytest.approx(5 / 12), 1)
    assert (result.judge_alone, result.passes_called_wrong, result.disagreements) == (None, None, None)
    assert (result.failures_called_right.value, result.failures_called_right.n) == (2 / 3, 3)


def test_a_recheck_that_was_interrupted_has_no_accuracy_yet() -> None:
    result = recheck({"A": "right", "x": "right"})
    assert (result.judged, result.failures_rechecked, result.judge_alone) == (2, None, None)
    assert (result.failures_called_right.value, result.failures_called_right.n) == (1, 1)


def test_a_judge_that_agrees_changes_no_figure() -> None:
    result = recheck({text: "right" if text.isupper() else "wrong" for text in SAID})
    assert values(result.failures_rechecked) == values(result.judge_alone) == (pytest.approx(1 / 3), 2 / 3)
    assert (result.disagreements.value, result.disagreements.n) == (0, 6)


def test_greedy_answers_alone_are_the_samples() -> None:
    greedy = [answer for answer in ANSWERS if answer.sample_index == GREEDY]
    verdicts: dict[tuple[str, int], OracleVerdict] = {(answer.item_id, GREEDY): "right" for answer in greedy}
    results = [Evaluated(item, None, 1, int(item != "c"), item != "c", item != "c") for item in GIVEN]
    result = recheck_of("judge", results, greedy, verdicts)
    assert values(result.failures_rechecked) == values(result.judge_alone) == (1, 1)


def test_results_whose_answers_are_not_stored_stay() -> None:
    only_b = [answer for answer in ANSWERS if answer.item_id == "b"]
    assert values(recheck(SAID, only_b).judge_alone) == (pytest.approx(3 / 4 / 3), 1 / 3)
