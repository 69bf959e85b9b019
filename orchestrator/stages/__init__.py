"""The stages of a run, one function each; `orchestrator.plan` has their order.

A stage does its work in batches and returns its last write, which the ledger commits together with the mark "done".
What a stage needs it reads from the store; what it draws it draws with seeds from its key: run again after a crash, it
makes the rows that are missing, and they are the rows it would have made.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.ledger import LastWrite, Stage
from orchestrator.stages.context import Context, Progress, StageError
from orchestrator.stages.dataset import generate_questions, label_questions, read_prompts
from orchestrator.stages.health import check_health
from orchestrator.stages.measuring import audit_labels, evaluate
from orchestrator.stages.training import train_challenger, train_solver

STAGE_FUNCTIONS: dict[Stage, Callable[[Context], LastWrite]] = {
    "train_challenger": train_challenger,
    "generate_questions": generate_questions,
    "label_questions": label_questions,
    "train_solver": train_solver,
    "evaluate": evaluate,
    "audit_labels": audit_labels,
    "check_health": check_health,
    "read_prompts": read_prompts,
}

__all__ = ["STAGE_FUNCTIONS", "Context", "Progress", "StageError"]
