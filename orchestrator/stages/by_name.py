"""Finds the function of a stage by its name. `orchestrator.plan` has the order of the stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from core.types import Stage
from orchestrator.ledger import LastWrite, Result
from orchestrator.stages.admit_questions import admit_questions
from orchestrator.stages.ask_a_person import ask_a_person
from orchestrator.stages.audit_labels import audit_labels
from orchestrator.stages.check_health import check_health
from orchestrator.stages.context import Context
from orchestrator.stages.evaluate import evaluate
from orchestrator.stages.evaluate_labelled import evaluate_labelled
from orchestrator.stages.generate_questions import generate_questions
from orchestrator.stages.label_questions import label_questions
from orchestrator.stages.read_prompts import read_prompts
from orchestrator.stages.train_challenger import train_challenger
from orchestrator.stages.train_labelled import train_labelled
from orchestrator.stages.train_solver import train_solver
from services.drift.series import refresh_after

# `ask_a_person` is not here, because it also gets the person's answer.
STAGE_FUNCTIONS: dict[Stage, Callable[[Context[Any]], LastWrite]] = {
    "train_challenger": train_challenger,
    "generate_questions": generate_questions,
    "label_questions": label_questions,
    "admit_questions": admit_questions,
    "train_solver": train_solver,
    "train_labelled": train_labelled,
    "evaluate": evaluate,
    "evaluate_labelled": evaluate_labelled,
    "audit_labels": audit_labels,
    "check_health": check_health,
    "read_prompts": read_prompts,
}


def last_write_of(context: Context[Any], answer: Mapping[str, Any] | None = None) -> LastWrite:
    """Do the work of the context's stage, and return its last write. `answer` is that of a person, if one was asked.

    The last write also stores the figures that the stage completes, so that they are seen before `check_health`.
    """
    made = STAGE_FUNCTIONS[context.stage](context) if answer is None else ask_a_person(context, **answer)

    def with_series(session: Session) -> Result:
        result = made(session)
        refresh_after(session, context.run.name, context.iteration, context.stage)
        return result

    return with_series
