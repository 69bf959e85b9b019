"""What finished runs of the same preset took on this installation, which is worth more than assumed speeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.statistics.remaining import Remaining
from core.types import Stage
from orchestrator.check.size.calculate import HOUR, Plan, Range, StagePlan, calculate
from orchestrator.plan import stages_of
from services.remaining import durations_of, range_text
from storage import queries
from storage.queries.run_list import RunFilter
from storage.rows import ENDED

_MOST_RUNS = 3  # the newest ones…
_MOST_LISTED = 100  # …among so many of the preset


@dataclass(frozen=True, slots=True)
class Measured:
    """Hours from finished `runs`, shortest and longest: of an iteration, and of the whole run.

    Where a run had other numbers of questions, steps or answers, its times are scaled by the arithmetic's ratio of the
    two settings, stage by stage.
    """

    runs: tuple[str, ...]
    hours: Range
    run_hours: Range

    def sentence(self, iterations: int) -> str:
        one, run = (range_text(Remaining(low * HOUR, high * HOUR)) for low, high in (self.hours, self.run_hours))
        return (
            f"measured here: {', '.join(self.runs)} took {one} an iteration, if scaled to these settings, so "
            f"{iterations} iterations take {run}. The hours below are arithmetic, and these are worth more"
        )


def measured(session: Session, plan: Plan) -> Measured | None:
    """None if no finished run has the preset, base model, trainer, applications and stages of the plan."""
    before, later, runs = list[float](), list[float](), list[str]()
    for run, config in islice(_similar(session, plan), _MOST_RUNS):
        own = calculate(plan.preset, config, plan.assumed)
        durations = durations_of(queries.ledger.stages_of(session, run))
        by_iteration = {
            t: _scaled({stage: seconds for (i, stage), seconds in durations.items() if i == t}, plan, own, t)
            for t in range(config.iterations + 1)
        }
        first, *others = by_iteration.values()
        whole = [hours for hours in others if hours is not None]
        if first is not None and whole:
            runs.append(run)
            before.append(first)
            later += whole
    if not runs:
        return None
    low, high = min(later), max(later)
    count = plan.config.iterations
    return Measured((*runs,), (low, high), (min(before) + count * low, max(before) + count * high))


def _similar(session: Session, plan: Plan) -> Iterator[tuple[str, RunConfig]]:
    for run, _ in queries.run_list.page_of_runs(session, RunFilter(preset=plan.preset), limit=_MOST_LISTED):
        if run.status in ENDED:
            config = queries.runs.config_of_run(session, run.name)
            if _machine(config) == _machine(plan.config):
                yield run.name, config


def _machine(config: RunConfig) -> tuple[object, ...]:
    """What decides the speed of a stage beside how much there is to do."""
    stages = stages_of(config, 0), stages_of(config, 1)
    return config.base_model, config.trainer.type, config.serving.applications, config.solver.reward.type, stages


def _scaled(seconds: Mapping[Stage, float], plan: Plan, own: Plan, iteration: int) -> float | None:
    """The hours of an iteration with the plan's settings; None if one of its stages is not known."""
    total = 0.0
    for stage, others in zip(_stages(plan, iteration), _stages(own, iteration), strict=True):
        if stage.stage not in seconds:
            return None
        ratio = stage.hours[0] / others.hours[0] if others.hours[0] else 1.0
        total += seconds[stage.stage] * ratio / HOUR
    return total


def _stages(plan: Plan, iteration: int) -> tuple[StagePlan, ...]:
    return plan.stages if iteration else plan.before
