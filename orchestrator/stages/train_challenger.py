"""Trains C(t): the Challenger learns to ask questions that S(t-1) is least sure of (R-Zero 2.2)."""

from __future__ import annotations

from core.settings.config import CoEvolution
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context
from orchestrator.stages.training.jobs import challenger_job
from orchestrator.stages.training.running import train
from orchestrator.stages.training.sampling import samples


def train_challenger(context: Context[CoEvolution]) -> LastWrite:
    start = context.checkpoint("challenger")
    if not context.config.challenger.trained:
        return lambda _session: {"checkpoint": start.id, "trained": False}
    solver = context.checkpoint("solver")
    key, solver_url = f"{context.iteration}/train_challenger", context.run.services.endpoint("solver")
    # The Solver is served meanwhile, because its answers are the Challenger's reward.
    served = {"solver": solver, **samples(context.config, "challenger", start)}
    with context.serving(served, for_later={"challenger": start}):
        return train(context, challenger_job(context.config, key, start, solver, solver_url, context.work_dir))
