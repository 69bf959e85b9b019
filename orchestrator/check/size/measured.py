"""What finished runs of the same preset took on this installation, which is worth more than assumed speeds."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from orchestrator.check.size.estimate import Estimate, Range, estimate
from orchestrator.plan import stages_of
from services.views.remaining import durations_of
from storage import queries
from storage.queries.run_list import RunFilter
from storage.rows import ENDED

_MOST_RUNS = 3  # the newest ones…
_MOST_LISTED = 100  # …among so many of the preset


@dataclass(frozen=True, slots=True)
class Measured:
    """Hours from finished `runs`, shortest and longest: of an iteration, and of the whole run.

    Where a run had other numbers of questions, steps or answers, its times are scaled by the estimates' ratio of the
    two settings, stage by stage.
    """

    runs: tuple[str, ...]
    hours: Range
    run_hours: Range


def measured(session: Session, preset: str, found: Estimate) -> Measured | None:
    """None if no finished run has the preset, base model, trainer, applications and stages of the estimate."""
    before, later, runs = list[float](), list[float](), list[str]()
    for run, _ in queries.run_list.page_of_runs(session, RunFilter(preset=preset), limit=_MOST_LISTED):
        if run.status not in ENDED or len(runs) == _MOST_RUNS:
            continue
        config = queries.runs.config_of_run(session, run.name)
        if _machine(config) != _machine(found.config):
            continue
        own = estimate(config, found.gpu_memory)
        ratios = {
            stage.stage: stage.hours[0] / other.hours[0] if other.hours[0] else 1.0
            for stage, other in zip((*found.before, *found.stages), (*own.before, *own.stages), strict=True)
        }
        stages = queries.ledger.stages_of(session, run.name)
        durations = durations_of(stage for stage in stages if stage.run == run.name)  # a fork's are not of a whole run
        hours = [
            sum(durations[t, stage] * ratios[stage] / 3600 for stage in stages_of(config, t))
            for t in range(config.iterations + 1)
            if all((t, stage) in durations for stage in stages_of(config, t))
        ]
        if len(hours) > 1 and all((0, stage) in durations for stage in stages_of(config, 0)):
            runs.append(run.name)
            before.append(hours[0])
            later += hours[1:]
    if not runs:
        return None
    low, high, count = min(later), max(later), found.config.iterations
    return Measured((*runs,), (low, high), (min(before) + count * low, max(before) + count * high))


def _machine(config: RunConfig) -> tuple[object, ...]:
    """What decides the speed of a stage beside how much there is to do."""
    stages = stages_of(config, 0), stages_of(config, 1)
    return config.base_model, config.trainer.type, config.serving.applications, config.solver.reward.type, stages
