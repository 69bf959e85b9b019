"""Which function is which stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.types import Stage
from orchestrator.ledger import LastWrite
from orchestrator.stages.auditing import audit_labels
from orchestrator.stages.context import Context
from orchestrator.stages.dataset import generate_questions, label_questions, read_prompts
from orchestrator.stages.health import check_health
from orchestrator.stages.measuring import evaluate
from orchestrator.stages.training import train_challenger, train_solver

STAGE_FUNCTIONS: dict[Stage, Callable[[Context[Any]], LastWrite]] = {
    "train_challenger": train_challenger,
    "generate_questions": generate_questions,
    "label_questions": label_questions,
    "train_solver": train_solver,
    "evaluate": evaluate,
    "audit_labels": audit_labels,
    "check_health": check_health,
    "read_prompts": read_prompts,
}
