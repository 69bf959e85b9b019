"""The oracle of people: what enough annotators say of a pseudo-label, each on their own, settles it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy.orm import Session

from core.types import OracleLabel, OracleVerdict
from storage import queries
from storage.rows import AnnotationRow

ORACLE = "human"
NEEDED = 2  # annotators that agree


def annotate(session: Session, row: AnnotationRow, needed: int = NEEDED) -> bool:
    """Store what somebody said of a question of the sample, and the label of `human` with the word that settles it.

    Whether the word counts: it settles the question, or is the one after which enough have spoken, though they differ
    or skip it. A later word that settles nothing does not; what is said of a settled question is kept, and changes
    nothing.

    Both are in the caller's transaction. The question is locked first, so that of two annotators who speak at once
    one sees the other's word.

    Raises:
        NotThere: the question is not in the sample.
        AlreadyAnnotated: this annotator has said something of it before.
    """
    queries.audits.lock_sample(session, row.question_id, ORACLE)
    queries.audits.add_annotation(session, row)
    if queries.audits.has_label(session, row.question_id, ORACLE):
        return False
    verdicts = [annotation.verdict for annotation in queries.audits.annotations_of(session, [row.question_id])]
    verdict = settled(verdicts, needed)
    if verdict is None:
        return len(verdicts) == needed
    queries.questions.add_oracle_labels(session, [OracleLabel(row.question_id, ORACLE, verdict, None)])
    return True


def is_over(session: Session, run: str, iteration: int, needed: int = NEEDED) -> bool:
    """Whether each question that was drawn is settled, or enough have spoken of it: a sample with questions that people
    differ on or skip is over too, as no one may be there to decide, and nobody waits for who left in between. False
    where none was drawn."""
    return queries.audits.sample_is_over(session, run, iteration, ORACLE, needed)


def settled(verdicts: Iterable[OracleVerdict], needed: int = NEEDED) -> OracleVerdict | None:
    """The verdict that at least `needed` annotators gave, and more than half of those who did not skip; None while
    there is none. A skip (`unknown`) is no word."""
    counts = Counter(verdict for verdict in verdicts if verdict != "unknown")
    if not counts:
        return None
    [(verdict, most)] = counts.most_common(1)
    return verdict if most >= needed and 2 * most > counts.total() else None
