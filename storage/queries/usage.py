"""What the stages of a run have used: time, devices, requests, tokens."""

from __future__ import annotations

from sqlalchemy.orm import Session

from core.types import Purpose, Spent, StageKey
from storage.models import Usage
from storage.queries.tables import find_rows, insert_into
from storage.rows import UsageRow


def add_usage(
    session: Session,
    key: StageKey,
    purpose: Purpose,
    spent: Spent = Spent(),  # noqa: B008 (it is frozen)
    *,
    seconds: float = 0.0,
    cpu_seconds: float = 0.0,
    gpu_seconds: float = 0.0,
) -> None:
    """Add to what a stage has used for a purpose. Call it in the transaction that stores what came of it, so that a
    batch that was not stored is not counted."""
    amounts = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "gpu_seconds": gpu_seconds,
        "requests": spent.requests,
        "prompt_tokens": spent.prompt_tokens,
        "reply_tokens": spent.reply_tokens,
    }
    row = {"run": key.run, "iteration": key.iteration, "stage": key.stage, "purpose": purpose}
    sums = {name: getattr(Usage, name) + amount for name, amount in amounts.items()}
    insert = insert_into(session, Usage).values(**row, **amounts)
    session.execute(insert.on_conflict_do_update(index_elements=[*row], set_=sums))


def usage_of(session: Session, run: str) -> list[UsageRow]:
    """What a run has used, by iteration, stage and purpose."""
    return find_rows(session, Usage, UsageRow, Usage.run == run, order=[Usage.iteration, Usage.stage, Usage.purpose])
