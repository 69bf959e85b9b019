"""The oracle of people. Enough annotators who agree, each labelling alone, settle the verdict on a pseudo-label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy.orm import Session

from core.types import OracleLabel, OracleVerdict
from storage import queries
from storage.rows import AnnotationRow

ORACLE = "human"
NEEDED = 2  # annotators who agree


def annotate(session: Session, row: AnnotationRow, needed: int = NEEDED) -> bool:
    """Store an annotation of a question of the sample, and, if it settles the question, the label of `human`.

    Returns whether the sample may be over because of it: it settles the question, or it is annotation number `needed`,
    even if the annotators disagree or skip the question. A later annotation that settles nothing returns False. So does
    an annotation of a settled question, which is stored and changes nothing.

    Both rows are written in the caller's transaction. The sample is locked first, so that if two annotators write at
    once, one of them sees the other's annotation.

    Raises:
        NotThere: the question is not in the sample.
        AlreadyAnnotated: this annotator has annotated the question before.
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
    """Whether each question of the sample is settled or has `needed` annotations. False if no sample was drawn.

    A question that annotators disagree on, or skip, does not keep a sample open: there may be no third annotator. Nor
    does an annotator who has left in between.
    """
    return queries.audits.sample_is_over(
        session, queries.forks.made_by(session, run, iteration), iteration, ORACLE, needed
    )


def settled(verdicts: Iterable[OracleVerdict], needed: int = NEEDED) -> OracleVerdict | None:
    """The verdict that at least `needed` annotators gave, and more than half of those who did not skip. None while
    there is no such verdict. A skip is the verdict `unknown`, and does not count."""
    counts = Counter(verdict for verdict in verdicts if verdict != "unknown")
    if not counts:
        return None
    [(verdict, count)] = counts.most_common(1)
    return verdict if count >= needed and 2 * count > counts.total() else None
