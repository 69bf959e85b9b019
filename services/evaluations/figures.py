"""The figures of an evaluation, and its questions with their answers, from the stored rows. Every interval is over
questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.statistics.accuracy import greedy_of, majority_of, pass_at_1_by_level, pass_at_1_of
from core.statistics.consistency import ConsistencyPoint, by_consistency
from core.statistics.curves import CurvePoint, Tally, curve
from core.statistics.estimates import Estimate, mean_share
from core.statistics.rechecks import Recheck, recheck_of
from core.statistics.standing import best_of
from core.types import (
    GREEDY,
    BenchmarkItem,
    Checkpoint,
    CheckpointRole,
    Evaluated,
    EvaluatedAnswer,
    JudgedAnswer,
    OracleVerdict,
)
from services.drift.series import accuracies
from storage import queries
from storage.errors import NotThere, StoreError
from storage.files.texts import evaluation_path, read_texts
from storage.queries.runs import RUN_NAME
from storage.rows import EvaluationRow

# A run's model, as evaluations name it: `demo:base`, `demo:best`, `demo:3` or `demo:labelled/3`.
RUN_MODEL = re.compile(rf"({RUN_NAME.pattern}):(base|best|(?:labelled/)?[0-9]{{1,6}})")


def named_checkpoint(session: Session, run: str, which: str) -> tuple[Checkpoint, RunConfig]:
    """The checkpoint that `run:which` names, and the run's settings.

    `which` is "base", "best" (the Solver with the highest pass@1 on the run's benchmark), an iteration, or
    "labelled/ITERATION", the Solver that was trained on labelled data apart from the loop. Raises `NotThere`.
    """
    config = queries.runs.config_of_run(session, run)
    if which == "best":
        best = best_iteration(session, run, config)
        if best is None:
            raise NotThere(f"model: {run}:best: the run has no evaluation yet; name an iteration")
        which = str(best)
    branch, _, number = which.rpartition("/")
    iteration = 0 if which == "base" else int(number)
    role: CheckpointRole = "labelled" if branch else "solver" if iteration else "base"
    key = queries.checkpoints.id_of(session, run, role, iteration)
    try:
        return queries.checkpoints.get_checkpoint(session, key), config
    except NotThere as error:
        raise NotThere(f"model: {run}:{which}: {error}; the run has {_names(session, run)}") from error


def _names(session: Session, run: str, *, removed: bool = True) -> str:
    """The names of the run's Solvers for a message; without `removed`, only of those whose files are still there."""
    solvers = queries.checkpoints.solvers_of(session, run)
    names = [f"{run}:{solver.iteration or 'base'}" for solver in solvers if removed or not solver.files_removed]
    return ", ".join(names) or "no checkpoint yet"


def best_iteration(session: Session, run: str, config: RunConfig) -> int | None:
    """The iteration whose Solver has the highest pass@1 on the run's benchmark; None if none was evaluated."""
    results = accuracies(session, run, config.evaluation.benchmark)
    return best_of({t: accuracy.pass_at_1.value for t, accuracy in results.items()})


def servable_checkpoint(session: Session, run: str, which: str) -> tuple[Checkpoint, RunConfig]:
    """What `named_checkpoint` gives. Raises `NotThere` also if the run has not kept the checkpoint's files."""
    checkpoint, config = named_checkpoint(session, run, which)
    if checkpoint.files_removed:
        kept = _names(session, run, removed=False)
        raise NotThere(
            f"model: {run}:{which}: the files of {checkpoint.id} were removed, as checkpoints.keep says; expected one "
            f"of {kept}"
        )
    return checkpoint, config


@dataclass(frozen=True, slots=True)
class ListedEvaluation(EvaluationRow):
    """What a model was asked, and how many answers were right so far. The figures are those of `EvaluationFigures`;
    None before the first answer."""

    pass_at_1: Estimate | None
    greedy: Estimate | None
    majority: Estimate | None


@dataclass(frozen=True, slots=True)
class EvaluationFigures:
    """The figures of one evaluation. If `samples` is 0, there are only greedy answers, and all figures are of them.
    `greedy` is None if the model refused temperature 0.

    `vote_share` is the mean share of votes that the majority has, `truncated` that of answers that were cut off at the
    token limit, `unparsed` that of replies without an answer. `mean_tokens` is of a sampled reply, `tokens` of all
    replies, greedy ones included. `by_level` and `by_subject` are pass@1. `by_majority_share` is of the
    sampled answers.
    """

    evaluation: EvaluationRow
    questions: int  # that are answered
    samples: int
    pass_at_1: Estimate
    greedy: Estimate | None
    majority: Estimate
    curve: list[CurvePoint]
    vote_share: Estimate | None
    truncated: Estimate | None
    unparsed: Estimate | None
    mean_tokens: float
    tokens: int
    by_level: dict[str, Estimate]
    by_subject: dict[str, Estimate]
    by_majority_share: list[ConsistencyPoint]
    rechecks: list[Recheck]  # by the judge's name


@dataclass(frozen=True, slots=True)
class Record:
    """A question of an evaluation, with its result, its answers by sample index, and what judges say about these.

    `texts` are the whole replies in the order of the answers; None in lists, and if they are not kept. `question` is
    None if only its id is stored.
    """

    question: BenchmarkItem | None
    result: Evaluated
    answers: list[EvaluatedAnswer]
    judged: list[JudgedAnswer]
    texts: list[str] | None


def with_accuracy(session: Session, rows: Sequence[EvaluationRow]) -> list[ListedEvaluation]:
    """The same evaluations with their accuracy."""
    sums = queries.evaluations.sums_by_id(session, [row.id for row in rows])
    listed = []
    for row in rows:
        summed = sums.get(row.id)
        figures = (summed.pass_at_1, summed.greedy, summed.majority) if summed else (None, None, None)
        listed.append(ListedEvaluation(*(getattr(row, field.name) for field in fields(row)), *figures))
    return listed


def figures_of(session: Session, key: str) -> EvaluationFigures | None:
    """The figures of the evaluation with this key; None before its first answer. Raises `NotThere`."""
    row = queries.evaluations.get_evaluation(session, key)
    results, answers = queries.evaluations.results_of(session, key), queries.evaluations.answers_of(session, key)
    pass_at_1, majority = pass_at_1_of(results), majority_of(results)
    if pass_at_1 is None or majority is None:
        return None
    sampled = [answer for answer in answers if answer.sample_index != GREEDY]
    counted = sampled or answers
    groups = [[*group] for _, group in groupby(counted, lambda answer: answer.item_id)]
    tallies = [tally_of(group) for group in groups]

    def mean_of(holds: Callable[[EvaluatedAnswer], bool]) -> Estimate | None:
        return mean_share([fmean(map(holds, group)) for group in groups])

    subjects = {item.id: item.subject for item in items_of(session, row)}
    verdicts: dict[str, dict[tuple[str, int], OracleVerdict]] = {}
    for judgement in queries.evaluations.judged_of(session, key):
        verdicts.setdefault(judgement.judge, {})[judgement.item_id, judgement.sample_index] = judgement.verdict
    return EvaluationFigures(
        evaluation=row,
        questions=len(results),
        samples=results[0].samples if sampled or not answers else 0,
        pass_at_1=pass_at_1,
        greedy=greedy_of(results),
        majority=majority,
        curve=curve(tallies),
        vote_share=mean_of(lambda answer: answer.answer_class == 0) if sampled else None,
        truncated=mean_of(lambda answer: answer.finish_reason == "length"),
        unparsed=mean_of(lambda answer: answer.answer is None),
        mean_tokens=fmean(answer.tokens for answer in counted) if counted else 0.0,
        tokens=sum(answer.tokens for answer in answers),
        by_level=pass_at_1_by_level(results),
        by_subject=pass_at_1_by_level([replace(result, level=subjects.get(result.item_id)) for result in results]),
        by_majority_share=by_consistency(tallies) if sampled else [],
        rechecks=[recheck_of(judge, results, answers, verdicts[judge]) for judge in sorted(verdicts)],
    )


def tally_of(answers: Sequence[EvaluatedAnswer]) -> Tally:
    """The classes of the answers to one question. A class is right if an answer in it is."""
    classes: dict[int, list[bool]] = {}
    blank = 0
    for answer in answers:
        has_no_vote = answer.answer_class is None and answer.sample_index != GREEDY  # it says nothing, such as "."
        if answer.verdict is None or has_no_vote:
            blank += 1
        else:  # a greedy answer has no class; it is then the only one
            classes.setdefault(answer.answer_class or 0, []).append(answer.verdict == "equal")
    return Tally(tuple((len(members), any(members)) for members in classes.values()), blank)


def records_of(session: Session, key: str, *, after: str = "", limit: int | None = None) -> list[Record]:
    """The questions of an evaluation by item id, from the one after `after` on, without the whole replies.

    Raises `NotThere`.
    """
    row = queries.evaluations.get_evaluation(session, key)
    results = queries.evaluations.results_of(session, key, after=after, limit=limit)
    ids = [result.item_id for result in results]
    items = {item.id: item for item in items_of(session, row, ids)}
    answers = groupby(queries.evaluations.answers_of(session, key, ids), lambda answer: answer.item_id)
    judged = groupby(queries.evaluations.judged_of(session, key, ids), lambda judgement: judgement.item_id)
    answers_to, judged_of = {item: [*group] for item, group in answers}, {item: [*group] for item, group in judged}
    return [
        Record(
            items.get(result.item_id),
            result,
            answers_to.get(result.item_id, []),
            judged_of.get(result.item_id, []),
            None,
        )
        for result in results
    ]


def record_of(session: Session, key: str, item: str, texts: Path | None) -> Record:
    """One question of an evaluation with its answers. `texts` is the folder with the texts of rollouts.

    Raises `NotThere`.
    """
    row = queries.evaluations.get_evaluation(session, key)
    result = queries.evaluations.result_of(session, key, item)
    question = next(items_of(session, row, [item]), None)
    answers = queries.evaluations.answers_of(session, key, [item])
    judged = queries.evaluations.judged_of(session, key, [item])
    replies: list[str] | None = None  # the whole ones are not kept, or not yet complete
    if texts is not None and answers:
        with suppress(StoreError):
            rows = read_texts(evaluation_path(texts, key), [item])
            by_sample = {row.sample_index: row.text for row in rows}
            replies = [by_sample.get(answer.sample_index, "") for answer in answers]
    return Record(question, result, answers, judged, replies)


def items_of(session: Session, row: EvaluationRow, ids: Sequence[str] | None = None) -> Iterator[BenchmarkItem]:
    """The questions of an evaluation, or those with these ids, if they are stored."""
    if "benchmark" in row.manifest:
        yield from queries.evaluations.benchmark_items(session, row.manifest["benchmark"]["sha256"], ids)
