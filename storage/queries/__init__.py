"""All SQL statements: plain functions that take the session first, one module for each group of tables.

The functions take and return frozen dataclasses, never ORM rows. They run in the caller's transaction, so that several
changes can be committed together. A `get_…` function raises `NotThere`, a `StoreError`, when there is no such object.
"""

from storage.queries import (
    alerts,
    audits,
    browse,
    checkpoints,
    drift,
    evaluations,
    experiments,
    figures,
    forks,
    keys,
    ledger,
    metrics,
    pool,
    questions,
    run_leases,
    run_list,
    run_notes,
    run_rows,
    runs,
    series,
    sizes,
    tables,
    traces,
    training_rollouts,
    usage,
    votes,
)
