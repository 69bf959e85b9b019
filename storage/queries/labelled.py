"""Whether an iteration's questions have their labels for good."""

from __future__ import annotations

from sqlalchemy.orm import Session

from storage.queries.ledger import find_stage
from storage.queries.questions import count_questions, count_verdicts


def all_labelled(session: Session, run: str, iteration: int) -> bool:
    """Whether `label_questions` is done; where there is none, since nobody votes on the given prompts, whether
    `read_prompts` is and has given every question its verdict."""
    voted = find_stage(session, run=run, iteration=iteration, stage="label_questions")
    if voted is not None:
        return voted.status == "done"
    read = find_stage(session, run=run, iteration=iteration, stage="read_prompts")
    if read is None or read.status != "done":
        return False
    return sum(count_verdicts(session, run, iteration).values()) == count_questions(session, run, iteration)
