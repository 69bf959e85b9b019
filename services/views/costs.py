"""What a run has cost: time, devices, tokens and money of its stages, and what a question with a right label costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from typing import get_args

from sqlalchemy.orm import Session

from core.settings.costs import Rates
from core.statistics.estimates import Estimate
from core.types import Purpose, Stage, Verdict
from services.oracles.accuracy import Accuracy, measured_so_far
from storage import queries
from storage.rows import UsageRow

# The stages that make the Solver's questions and their labels.
_MAKING: tuple[Stage, ...] = ("train_challenger", "generate_questions", "label_questions", "admit_questions")
_KEPT: Verdict = "kept"
_TOKENS = 1_000_000  # that a rate for tokens is for


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts that have been used. `seconds` is the time of stages; devices are used at the same time."""

    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    requests: int
    prompt_tokens: int
    reply_tokens: int
    judge_requests: int
    money: float

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


NOTHING = Amounts(0.0, 0.0, 0.0, 0, 0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stage of an iteration has used for one purpose."""

    iteration: int
    stage: Stage
    purpose: Purpose
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Correct:
    """How many kept questions have a right label by an oracle, in the iterations that it has graded, and their cost.

    `cost` is what it took to make and label the questions of these iterations. `money` and `seconds` (of CPUs and GPUs)
    are its shares for one right label.
    """

    oracle: str
    questions: Estimate
    cost: Amounts
    seconds: Estimate
    money: Estimate


@dataclass(frozen=True, slots=True)
class RunCosts:
    """What a run has cost so far.

    `rows` add up to `total`. `making` is the part that made and labelled questions, `kept` the number of those that
    were kept after a vote; given prompts without a vote were not made by the run. `elapsed_seconds` is the time from
    the run's creation to the end of its last stage.
    """

    currency: str | None  # None: no price is known
    rows: list[Cost]
    total: Amounts
    elapsed_seconds: float | None
    making: Amounts
    kept: int
    correct: list[Correct]


def costs_of(session: Session, run: str, rates: Rates) -> RunCosts:
    """What a run has cost so far; what a fork has inherited has cost it nothing. Raises `NotThere`."""
    created, inherited = queries.runs.get_run(session, run).created_at, queries.forks.inherited(session, run)
    stages = [stage for stage in queries.ledger.stages_of(session, run) if stage.iteration not in inherited]
    ends = [stage.finished_at for stage in stages if stage.finished_at is not None]
    rows = costs_by_stage(session, run, rates)
    making = [row for row in rows if row.stage in _MAKING]
    statistics = [of for t, of in queries.figures.filter_stats_of(session, run).items() if t not in inherited]
    by_oracle: dict[str, list[Accuracy]] = {}
    for accuracy in measured_so_far(session, run):
        if accuracy.over == _KEPT and accuracy.iteration not in inherited:
            by_oracle.setdefault(accuracy.oracle, []).append(accuracy)
    return RunCosts(
        currency=rates.currency if rates.known else None,
        rows=rows,
        total=_sum(rows),
        elapsed_seconds=(max(ends) - created).total_seconds() if ends else None,
        making=_sum(making),
        kept=sum(stats.kept for stats in statistics if stats.mean_p_hat is not None),
        correct=[
            correct for oracle, known in by_oracle.items() if (correct := _correct(oracle, known, making)) is not None
        ],
    )


def total_of(session: Session, run: str, rates: Rates) -> Amounts:
    """What a run has used in total so far."""
    return _sum(costs_by_stage(session, run, rates))


def costs_by_stage(session: Session, run: str, rates: Rates) -> list[Cost]:
    """What a run has used so far, by iteration, stage and purpose."""
    rows = {(row.iteration, row.stage, row.purpose): row for row in queries.usage.usage_of(session, run)}
    for job in queries.pool.pool_jobs(session, run):  # the devices of a training are those of its slot in the pool
        row = rows.get((job.iteration, job.stage, "training"))
        used = (job.used, 0.0) if job.kind == "CPU" else (0.0, job.used)
        counts = (row.requests, row.prompt_tokens, row.reply_tokens) if row else (0, 0, 0)
        rows[job.iteration, job.stage, "training"] = UsageRow(job.iteration, job.stage, "training", 0.0, *used, *counts)
    stages, purposes = get_args(Stage), get_args(Purpose)

    def position(row: UsageRow) -> tuple[int, int, int]:
        return row.iteration, stages.index(row.stage), purposes.index(row.purpose)

    costs = []
    for row in sorted(rows.values(), key=position):
        money = (row.gpu_seconds * rates.gpu_hour + row.cpu_seconds * rates.cpu_hour) / 3600
        if row.purpose == "judge":
            money += (row.prompt_tokens * rates.judge_prompt + row.reply_tokens * rates.judge_reply) / _TOKENS
        amounts = Amounts(
            row.seconds if row.purpose == "stage" else 0.0,
            row.cpu_seconds,
            row.gpu_seconds,
            row.requests,
            row.prompt_tokens,
            row.reply_tokens,
            row.requests if row.purpose == "judge" else 0,
            money,
        )
        costs.append(Cost(row.iteration, row.stage, row.purpose, amounts))
    return costs


def _sum(rows: Iterable[Cost]) -> Amounts:
    return sum((row.amounts for row in rows), NOTHING)


def _correct(oracle: str, known: Sequence[Accuracy], making: Sequence[Cost]) -> Correct | None:
    """None if no label is right for certain, so that the cost of a right one has no upper bound.

    The interval of the sum over iterations is made of the iterations' own (MOVER: Zou and Donner 2008, section 2).
    """
    values = [(accuracy.population, accuracy.figure) for accuracy in known]
    count = sum(size * figure.value for size, figure in values)
    lower = count - sqrt(sum((size * (figure.value - figure.lo)) ** 2 for size, figure in values))
    upper = count + sqrt(sum((size * (figure.hi - figure.value)) ** 2 for size, figure in values))
    if lower <= 0:
        return None
    n = sum(figure.n for _, figure in values)
    graded = {accuracy.iteration for accuracy in known}
    cost = _sum(row for row in making if row.iteration in graded)

    def of_one(amount: float) -> Estimate:
        return Estimate(amount / count, amount / upper, amount / lower, n)

    seconds = of_one(cost.cpu_seconds + cost.gpu_seconds)
    return Correct(oracle, Estimate(count, lower, upper, n), cost, seconds, of_one(cost.money))
