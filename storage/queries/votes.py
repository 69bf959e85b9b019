"""Reads the votes on many questions at once, with the classes of answers that they are in."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.models import PseudoLabels, Rollouts
from storage.queries.tables import columns
from storage.rows import RolloutRow

Classes = tuple[tuple[str, int], ...]  # (representative answer, votes), as in `core.types.PseudoLabel`


def votes_of(session: Session, question_ids: Sequence[str]) -> dict[str, tuple[Classes, list[RolloutRow]]]:
    """Question -> the classes of its label, and its votes by `sample_index`; questions without votes are left out."""
    labelled = select(PseudoLabels.question_id, PseudoLabels.classes).where(PseudoLabels.question_id.in_(question_ids))
    classes = {key: tuple((answer, count) for answer, count in of or ()) for key, of in session.execute(labelled)}
    statement = select(*columns(Rollouts, RolloutRow)).where(Rollouts.question_id.in_(question_ids))
    votes: dict[str, tuple[Classes, list[RolloutRow]]] = {}
    for row in session.execute(statement.order_by(Rollouts.sample_index)):
        vote = RolloutRow(*row)
        votes.setdefault(vote.question_id, (classes.get(vote.question_id, ()), []))[1].append(vote)
    return {key: votes[key] for key in question_ids if key in votes}
