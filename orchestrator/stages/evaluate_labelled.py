"""Evaluates the checkpoint of `train_labelled` in the same way as S(t)."""

from __future__ import annotations

from core.settings.config import CoEvolution
from core.types import checkpoint_id
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context
from orchestrator.stages.evaluate import evaluate_checkpoint
from storage import queries


def evaluate_labelled(context: Context[CoEvolution]) -> LastWrite:
    with context.store.read() as session:
        key = checkpoint_id(context.run.name, "labelled", context.iteration)
        branch = queries.checkpoints.get_checkpoint(session, key)
    return evaluate_checkpoint(context, branch)
