"""Evaluations: what a model was asked, its answers, and how many were right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Integer, cast, func, or_, select, update
from sqlalchemy.orm import Session

from core.statistics.accuracy import Accuracy, accuracy
from core.statistics.estimates import Estimate, Sums, mean_share, share
from core.types import BenchmarkItem, Evaluated, EvaluatedAnswer, JudgedAnswer, evaluation_id
from storage.errors import NotThere
from storage.models import BenchmarkItems, Checkpoints, EvaluatedAnswers, EvaluatedItems, Evaluations, JudgedAnswers
from storage.queries.tables import find_row, find_rows, insert_new, table_of
from storage.rows import EvaluationRow


def begin_evaluation(
    session: Session,
    *,
    model: str,
    benchmark: str,
    manifest: Mapping[str, Any],
    protocol: Sequence[str | int | float] = (),
    run: str | None = None,
    checkpoint: str | None = None,
) -> EvaluationRow:
    """Store a new evaluation, or return the one that was begun with the same key. See `core.types.evaluation_id`."""
    key = evaluation_id(model, benchmark, *protocol)
    row: dict[str, Any] = {"id": key, "run": run, "checkpoint_id": checkpoint, "model": model, "benchmark": benchmark}
    row |= {"manifest": dict(manifest), "seconds": 0.0, "created_at": datetime.now(UTC), "finished_at": None}
    insert_new(session, Evaluations, [row])
    return get_evaluation(session, key)


def finish_evaluation(session: Session, key: str) -> None:
    """Record when all questions were answered. If questions are added later, it is finished again."""
    session.execute(update(table_of(Evaluations)).where(Evaluations.id == key).values(finished_at=datetime.now(UTC)))


def extend(session: Session, row: EvaluationRow, questions: int) -> None:
    """Note that an evaluation's benchmark has grown to so many questions, as an iteration's question set may."""
    manifest = {**row.manifest, "benchmark": {**row.manifest["benchmark"], "questions": questions}}
    session.execute(update(table_of(Evaluations)).where(Evaluations.id == row.id).values(manifest=manifest))


def get_evaluation(session: Session, key: str) -> EvaluationRow:
    if (row := find_evaluation(session, key)) is None:
        raise NotThere(f"evaluation {key}: no such evaluation")
    return row


def find_evaluation(session: Session, key: str) -> EvaluationRow | None:
    return find_row(session, Evaluations, EvaluationRow, Evaluations.id == key)


def list_evaluations(session: Session) -> list[EvaluationRow]:
    """The evaluations that no run made, the newest first."""
    return find_rows(
        session,
        Evaluations,
        EvaluationRow,
        Evaluations.run.is_(None),
        order=[Evaluations.created_at.desc(), Evaluations.id],
    )


def of_run(session: Session, run: str) -> list[EvaluationRow]:
    """The evaluations that a run made, in the order in which they were begun."""
    return find_rows(
        session, Evaluations, EvaluationRow, Evaluations.run == run, order=[Evaluations.created_at, Evaluations.id]
    )


def unfinished_on(session: Session, run: str) -> set[str]:
    """The ids of a run's checkpoints that have an evaluation which is not finished, by a run or not."""
    of_run = select(Checkpoints.id).where(Checkpoints.run == run)
    unfinished = select(Evaluations.checkpoint_id).where(
        Evaluations.checkpoint_id.in_(of_run), Evaluations.finished_at.is_(None)
    )
    return {key for key in session.scalars(unfinished) if key is not None}


def finished_on(session: Session, model: str, benchmark: str) -> list[EvaluationRow]:
    """The finished evaluations of a model on a benchmark, by a run or not, the newest last."""
    named = (Evaluations.model == model, Evaluations.benchmark == benchmark, Evaluations.finished_at.is_not(None))
    return find_rows(session, Evaluations, EvaluationRow, *named, order=[Evaluations.created_at, Evaluations.id])


def add_benchmark_items(session: Session, sha256: str, items: Sequence[BenchmarkItem]) -> None:
    """Store the questions of a benchmark under the sha256 of all of them."""
    rows = ({"sha256": sha256, "position": i, **asdict(item)} for i, item in enumerate(items))
    insert_new(session, BenchmarkItems, ({"item_id": row.pop("id"), **row} for row in rows))


def benchmark_items(session: Session, sha256: str, ids: Sequence[str] | None = None) -> list[BenchmarkItem]:
    """The stored questions of a benchmark, in the order of its file; only those with these ids if they are given."""
    row = BenchmarkItems
    statement = select(row.item_id, row.problem, row.answer, row.level, row.subject).where(row.sha256 == sha256)
    if ids is not None:
        statement = statement.where(row.item_id.in_(ids))
    return [BenchmarkItem(*values) for values in session.execute(statement.order_by(row.position))]


def add_results(
    session: Session,
    key: str,
    items: Iterable[Evaluated],
    answers: Iterable[EvaluatedAnswer] = (),
    *,
    seconds: float = 0.0,
) -> None:
    """Store the results on some questions and the answers that they count; `seconds` is what they took."""
    insert_new(session, EvaluatedItems, ({"evaluation_id": key, **asdict(item)} for item in items))
    insert_new(session, EvaluatedAnswers, ({"evaluation_id": key, **asdict(answer)} for answer in answers))
    spent = update(table_of(Evaluations)).where(Evaluations.id == key).values(seconds=Evaluations.seconds + seconds)
    session.execute(spent)


def results_of(session: Session, key: str, *, after: str = "", limit: int | None = None) -> list[Evaluated]:
    """The results of an evaluation by item id, from the one after `after` on, and at most `limit`."""
    row = EvaluatedItems
    page = [row.evaluation_id == key, row.item_id > after]
    return find_rows(session, row, Evaluated, *page, order=[row.item_id], limit=limit)


def result_of(session: Session, key: str, item: str) -> Evaluated:
    """The result on one question. Raises `NotThere`."""
    of_item = (EvaluatedItems.evaluation_id == key, EvaluatedItems.item_id == item)
    row = find_row(session, EvaluatedItems, Evaluated, *of_item)
    if row is None:
        raise NotThere(f"question {item!r}: evaluation {key} has no answers to it")
    return row


def answers_of(session: Session, key: str, items: Sequence[str] | None = None) -> list[EvaluatedAnswer]:
    """The answers of an evaluation, by item id and sample index; only those to `items` if they are given."""
    row = EvaluatedAnswers
    to_items = [row.evaluation_id == key, *([] if items is None else [row.item_id.in_(items)])]
    return find_rows(session, row, EvaluatedAnswer, *to_items, order=[row.item_id, row.sample_index])


def add_judged(session: Session, key: str, judged: Iterable[JudgedAnswer]) -> None:
    insert_new(session, JudgedAnswers, ({"evaluation_id": key, **asdict(judgement)} for judgement in judged))


def judged_of(session: Session, key: str, items: Sequence[str] | None = None) -> list[JudgedAnswer]:
    """What judges say about an evaluation's answers, by item id, sample index and judge; only about those to `items` if
    they are given."""
    row = JudgedAnswers
    about_items = [row.evaluation_id == key, *([] if items is None else [row.item_id.in_(items)])]
    return find_rows(session, row, JudgedAnswer, *about_items, order=[row.item_id, row.sample_index, row.judge])


def judged_counts(session: Session, key: str) -> dict[str, int]:
    """Judge -> how many answers of an evaluation it has judged."""
    judge = JudgedAnswers.judge
    counts = select(judge, func.count()).where(JudgedAnswers.evaluation_id == key).group_by(judge).order_by(judge)
    return dict(session.execute(counts).all())


def evaluated(session: Session, run: str) -> list[tuple[str, str]]:
    """The (checkpoint, benchmark) pairs that a run has evaluated, by the checkpoint's iteration."""
    key = (Checkpoints.iteration, Evaluations.model, Evaluations.benchmark)
    statement = select(*key).join(Checkpoints).where(Evaluations.run == run).order_by(*key)
    return [(checkpoint, benchmark) for _, checkpoint, benchmark in session.execute(statement)]


def evaluations_of(session: Session, checkpoint: str, benchmark: str) -> list[Evaluated]:
    """The results of a run's checkpoint on a benchmark, as the run evaluated it, by item id."""
    return results_of(session, evaluation_id(checkpoint, benchmark))


def problems_answered(session: Session, checkpoint: str, benchmark: str) -> list[tuple[str, bool]]:
    """(text, whether the greedy answer or the majority is right) of each benchmark question that a run's checkpoint has
    answered in an evaluation by the run; none if it is not stored what was asked."""
    row, item = EvaluatedItems, BenchmarkItems
    evaluation = find_evaluation(session, evaluation_id(checkpoint, benchmark))
    asked = evaluation.manifest.get("benchmark") if evaluation is not None else None
    if evaluation is None or asked is None:
        return []
    right = or_(row.majority_correct, func.coalesce(row.greedy_correct, False))
    joined = select(item.problem, right).join_from(row, item, item.item_id == row.item_id)
    of_evaluation = (row.evaluation_id == evaluation.id, item.sha256 == asked["sha256"])
    return [(problem, bool(is_right)) for problem, is_right in session.execute(joined.where(*of_evaluation))]


@dataclass(frozen=True, slots=True)
class EvaluationSums:
    """The results of a model, which is a checkpoint if a run evaluated it, on a benchmark, summed over its items."""

    checkpoint: str
    benchmark: str
    samples: int  # per item
    pass_at_1: Estimate
    greedy: Estimate | None  # None: not asked greedily
    majority: Estimate

    @property
    def accuracy(self) -> Accuracy | None:
        """None without greedy answers, which a run always has."""
        return accuracy(self.pass_at_1, self.greedy, self.majority)


def _figures() -> list[Any]:
    """What `_sums` reads, summed over the items of a group. These are integers, so equal results have equal sums."""
    row = EvaluatedItems
    sums = [func.max(row.samples), func.count(), func.sum(row.correct), func.sum(row.correct * row.correct)]
    right = [func.coalesce(func.sum(cast(one, Integer)), 0) for one in (row.majority_correct, row.greedy_correct)]
    return [*sums, *right, func.count(row.greedy_correct)]


def _sums(
    model: str, benchmark: str, samples: int, n: int, correct: int, squares: int, majority: int, greedy: int, asked: int
) -> EvaluationSums:
    pass_at_1 = mean_share(Sums(n, int(correct) / samples, int(squares) / samples**2))
    of_majority = share(int(majority), n)
    if pass_at_1 is None or of_majority is None:
        raise AssertionError("a group of rows has a row")
    return EvaluationSums(model, benchmark, samples, pass_at_1, share(int(greedy), int(asked)), of_majority)


def evaluation_sums(session: Session, run: str) -> list[EvaluationSums]:
    """The results of every checkpoint of a run on every benchmark, as the run evaluated it, by iteration; without
    evaluations that are not finished: the first questions of a benchmark may be its easy ones."""
    key = (Checkpoints.iteration, Evaluations.model, Evaluations.benchmark)
    joined = select(*key, *_figures()).join(Checkpoints)
    joined = joined.join(EvaluatedItems, EvaluatedItems.evaluation_id == Evaluations.id)
    finished = (Evaluations.run == run, Evaluations.finished_at.is_not(None))
    statement = joined.where(*finished).group_by(*key).order_by(*key)
    return [_sums(*values) for _, *values in session.execute(statement)]


def sums_by_id(session: Session, keys: Sequence[str]) -> dict[str, EvaluationSums]:
    """The results of those evaluations, of the ones with these ids, that have any."""
    key = (Evaluations.id, Evaluations.model, Evaluations.benchmark)
    joined = select(*key, *_figures()).join(EvaluatedItems, EvaluatedItems.evaluation_id == Evaluations.id)
    statement = joined.where(Evaluations.id.in_(keys)).group_by(*key)
    return {id_: _sums(*values) for id_, *values in session.execute(statement)}
