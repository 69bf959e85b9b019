"""Drawing the pseudo-labels that an oracle is to grade, where it does not grade all."""

from __future__ import annotations

from sqlalchemy.orm import Session

from core.audits import AuditError, draw
from core.seeds import seed_for
from storage import queries
from storage.rows import SampleRow


def draw_sample(session: Session, run: str, iteration: int, oracle: str, size: int) -> list[SampleRow]:
    """Draw a sample of an iteration's pseudo-labels for an oracle, or extend the one that there is; all of it, in
    order of place. A smaller `size` than before changes nothing.

    The draw derives from the run's seed and the iteration, not from the oracle: what a person grades the judge has
    graded too, so that the two can be compared. It runs in the caller's transaction, which must be a writing one.

    Raises:
        NotThere: no such run.
        AuditError: `size` is not positive, not all questions are labelled yet, none has a pseudo-label, or the oracle
            has graded some without a sample: a sample would now hide these.
    """
    seed = seed_for(queries.get_run(session, run).seed, "audit", iteration)
    if not queries.all_labelled(session, run, iteration):
        raise AuditError(f"run {run}, iteration {iteration}: its questions are not all labelled yet")
    rows = queries.auditable(session, run, iteration)
    if not rows:
        raise AuditError(f"run {run}, iteration {iteration}: no question has a pseudo-label to be audited")
    graded = iteration in queries.oracles_of(session, run).get(oracle, [])
    if graded and not queries.sample_progress(session, run, iteration, oracle)[0]:
        raise AuditError(f"run {run}, iteration {iteration}: {oracle} has graded it without a sample already")
    drawn = draw(rows, size, seed)
    queries.add_samples(
        session, (SampleRow(each.question_id, oracle, run, iteration, each.stratum, each.place) for each in drawn)
    )
    return queries.samples_of(session, run, iteration, oracle)
