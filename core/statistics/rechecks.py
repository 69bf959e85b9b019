"""A judge's recheck of an evaluation: its verdicts on answers that the grader has compared with the true ones.

R-Zero lets GPT-4o recheck its evaluations (appendices E.3 and F). Its released code asks only about the answers that
the grader calls wrong, so accuracy can only rise. Here the answers that the grader calls right can be asked about too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from core.statistics.accuracy import greedy_of, pass_at_1_of
from core.statistics.estimates import Estimate, share
from core.types import GREEDY, Evaluated, EvaluatedAnswer, OracleVerdict


@dataclass(frozen=True, slots=True)
class Recount:
    """The accuracy of an evaluation whose answers were judged anew. Each n counts questions."""

    pass_at_1: Estimate
    greedy: Estimate | None


@dataclass(frozen=True, slots=True)
class Recheck:
    """What a judge says about an evaluation, beside what the grader says.

    A verdict that is neither right nor wrong is unclear; such an answer keeps the grader's. `failures_rechecked` counts
    an answer as right if the grader or the judge calls it right, as R-Zero's released code does; `judge_alone` counts
    what the judge calls right. Each is None until the judge was asked about all answers that it depends on.

    All other counts and shares are of different answers: the same answer to the same question is judged once. The
    shares are of clear verdicts, with Wilson's interval, and None without any. `disagreements` is None until all
    answers were asked about.
    """

    judge: str
    answers: int
    judged: int
    unclear: int
    failures_rechecked: Recount | None
    judge_alone: Recount | None
    passes_called_wrong: Estimate | None
    failures_called_right: Estimate | None
    disagreements: Estimate | None


def recheck_of(
    judge: str,
    results: Sequence[Evaluated],
    answers: Sequence[EvaluatedAnswer],
    verdicts: Mapping[tuple[str, int], OracleVerdict],
) -> Recheck:
    """The recheck of an evaluation. `verdicts` maps an answer's item id and sample index to what the judge says."""

    def verdict_on(answer: EvaluatedAnswer) -> OracleVerdict | None:
        return verdicts.get((answer.item_id, answer.sample_index))

    def by_grader_or_judge(answer: EvaluatedAnswer) -> bool:
        return _passed(answer) or verdict_on(answer) == "right"

    def by_judge(answer: EvaluatedAnswer) -> bool:
        return verdict_on(answer) == "right" or (_passed(answer) and verdict_on(answer) != "wrong")

    different = {(a.item_id, a.answer, _passed(a), verdict_on(a)) for a in answers if a.answer is not None}
    of_passes = [verdict for *_, passed, verdict in different if passed]
    of_failures = [verdict for *_, passed, verdict in different if not passed]
    every = [*of_passes, *of_failures]
    judged = [verdict for verdict in every if verdict is not None]
    wrong, right = of_passes.count("wrong"), of_failures.count("right")
    is_complete = len(judged) == len(every)
    return Recheck(
        judge=judge,
        answers=len(every),
        judged=len(judged),
        unclear=len(judged) - _clear(judged),
        failures_rechecked=None if None in of_failures else _recount(results, answers, by_grader_or_judge),
        judge_alone=_recount(results, answers, by_judge) if is_complete else None,
        passes_called_wrong=share(wrong, _clear(of_passes)),
        failures_called_right=share(right, _clear(of_failures)),
        disagreements=share(wrong + right, _clear(judged)) if is_complete else None,
    )


def _passed(answer: EvaluatedAnswer) -> bool:
    return answer.verdict == "equal"


def _clear(verdicts: Sequence[OracleVerdict | None]) -> int:
    return verdicts.count("right") + verdicts.count("wrong")


def _recount(
    results: Sequence[Evaluated], answers: Sequence[EvaluatedAnswer], is_right: Callable[[EvaluatedAnswer], bool]
) -> Recount | None:
    """The accuracy if these answers are the right ones. A result whose answers are not stored stays as it is."""
    groups: dict[str, list[EvaluatedAnswer]] = {}
    for answer in answers:
        groups.setdefault(answer.item_id, []).append(answer)
    recounted = list[Evaluated]()
    for result in results:
        group = groups.get(result.item_id, [])
        sampled = [answer for answer in group if answer.sample_index != GREEDY] or group
        greedy = [is_right(answer) for answer in group if answer.sample_index == GREEDY]
        counted = replace(result, correct=sum(map(is_right, sampled)), greedy_correct=greedy[0] if greedy else None)
        recounted.append(counted if group else result)
    pass_at_1 = pass_at_1_of(recounted)
    return Recount(pass_at_1, greedy_of(recounted)) if pass_at_1 else None
