"""Drawing the pseudo-labels that an oracle is to grade, where it does not grade all."""

from __future__ import annotations

from core.seeds import seed_for
from core.statistics.audits import AuditError, draw
from storage import queries
from storage.rows import SampleRow
from storage.session import Store


def draw_sample(store: Store, run: str, iteration: int, oracle: str, size: int) -> list[SampleRow]:
    """Draw a sample of an iteration's pseudo-labels for an oracle, or extend the one that there is; all of it, in
    order of position. A smaller `size` than before changes nothing.

    The draw derives from the run's seed and the iteration, not from the oracle: what a person grades the judge has
    graded too, so that the two can be compared. So two who draw at once draw the same, and nothing is computed while
    other writers wait: on SQLite there is one write lock.

    Raises:
        NotThere: no such run.
        AuditError: `size` is not positive, not all questions are labelled yet, none has a pseudo-label, or the oracle
            has graded some without a sample: a sample would now hide these.
    """
    at = f"run {run}, iteration {iteration}"
    with store.read() as session:
        seed = seed_for(queries.runs.get_run(session, run).seed, "audit", iteration)
        if not queries.questions.all_labelled(session, run, iteration):
            raise AuditError(f"{at}: its questions are not all labelled yet")
        rows = queries.audits.auditable(session, run, iteration)  # they do not change any more
    if not rows:
        raise AuditError(f"{at}: no question has a pseudo-label to be audited")
    drawn = [SampleRow(e.question_id, oracle, run, iteration, e.stratum, e.position) for e in draw(rows, size, seed)]
    with store.write() as session:
        graded = iteration in queries.audits.oracles_of(session, run).get(oracle, [])
        if graded and not queries.audits.sample_progress(session, run, iteration, oracle)[0]:
            raise AuditError(f"{at}: {oracle} has graded it without a sample already")
        queries.audits.add_samples(session, drawn)
    with store.read() as session:
        return queries.audits.samples_of(session, run, iteration, oracle)
