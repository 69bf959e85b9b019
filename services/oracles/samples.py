"""Draws the sample of pseudo-labels for an oracle that does not grade all of them."""

from __future__ import annotations

from core.seeds import seed_for
from core.statistics.audits import AuditError, draw
from storage import queries
from storage.rows import SampleRow
from storage.session import Store


def draw_sample(
    store: Store, run: str, iteration: int, oracle: str, size: int, *, kept_only: bool = False
) -> list[SampleRow]:
    """Draw a sample of an iteration's pseudo-labels for an oracle, or extend the existing sample to `size`.

    Returns the whole sample in order of position. A smaller `size` than before changes nothing. With `kept_only` the
    sample is drawn from the kept questions. A sample from all questions may extend one from the kept questions, or the
    reverse. Within a stratum, both take the same questions first.

    The draw derives from the run's seed and the iteration, and not from the oracle. So people and a judge grade the
    same questions, and can be compared. Two processes at once draw the same questions, too. So the draw is computed
    before the write transaction: SQLite has only one write lock, for which other writers would wait.

    Raises:
        NotThere: no such run.
        AuditError: `size` is not positive, not all questions are labelled yet, none has a pseudo-label, or the oracle
            has graded some without a sample: with a sample, these would no longer count.
    """
    where = f"run {run}, iteration {iteration}"
    with store.read() as session:
        seed = seed_for(queries.runs.get_run(session, run).seed, "audit", iteration)
        if not queries.questions.all_labelled(session, run, iteration):
            raise AuditError(f"{where}: its questions are not all labelled yet")
        rows = queries.audits.auditable(session, run, iteration)  # they are final once all questions are labelled
    rows = [row for row in rows if row[2] == "kept" or not kept_only]
    if not rows:
        raise AuditError(f"{where}: no {'kept ' if kept_only else ''}question has a pseudo-label to be audited")
    drawn = [
        SampleRow(entry.question_id, oracle, run, iteration, entry.stratum, entry.position)
        for entry in draw(rows, size, seed)
    ]
    with store.write() as session:
        graded = iteration in queries.audits.oracles_of(session, run).get(oracle, [])
        if graded and not queries.audits.sample_progress(session, run, iteration, oracle)[0]:
            raise AuditError(f"{where}: {oracle} has graded it without a sample already")
        queries.audits.add_samples(session, drawn)
    with store.read() as session:
        return queries.audits.samples_of(session, run, iteration, oracle)
