"""Trains C(t): the Challenger learns to ask questions that S(t-1) is least sure of (R-Zero 2.2)."""

from __future__ import annotations

from core.settings.config import CoEvolution
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context
from orchestrator.stages.training.jobs import challenger_job
from orchestrator.stages.training.running import train
from orchestrator.stages.training.sampling import samples
from storage import queries


def train_challenger(context: Context[CoEvolution]) -> LastWrite:
    start = context.checkpoint("challenger")
    if not context.config.challenger.trained:
        return lambda _session: {"checkpoint": start.id, "trained": False}
    solver = context.checkpoint("solver")
    key, solver_url = f"{context.iteration}/train_challenger", context.run.services.endpoint("solver")
    # The Solver is served meanwhile, because its answers are the Challenger's reward.
    served = {"solver": solver, **samples(context.config, "challenger", start)}
    with context.serving(served, for_later={"challenger": start}):
        earlier = earlier_questions(context)
        return train(context, challenger_job(context.config, key, start, solver, solver_url, context.work_dir, earlier))


def earlier_questions(context: Context[CoEvolution]) -> tuple[str, ...]:
    """The questions of earlier iterations that a Solver was unsure of, in order; none unless the reward needs them."""
    reward = context.config.challenger.reward
    if "earlier" not in reward.needs:
        return ()
    low, high = reward.memory_band
    with context.store.read() as session:
        makers = queries.forks.makers(session, context.run.name, context.iteration - 1)
        rows = [
            row
            for iteration in range(1, context.iteration)
            for row in queries.questions.labels_of(session, makers[iteration], iteration)
        ]
    return tuple(row.text for row in rows if row.text and row.label and low <= row.label.p_hat <= high)
