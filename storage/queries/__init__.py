"""Every statement that the store knows: plain functions, the session first, one module for each group of tables.

They take and give frozen dataclasses, never ORM rows, and run in the caller's transaction, so that what belongs
together is committed together. A thing asked for by its name (`get_…`) and not there is a `StoreError`.
"""

from storage.queries import (
    alerts,
    audits,
    browse,
    checkpoints,
    figures,
    keys,
    ledger,
    metrics,
    pool,
    questions,
    run_leases,
    runs,
    series,
    tables,
    traces,
)

__all__ = [
    "alerts",
    "audits",
    "browse",
    "checkpoints",
    "figures",
    "keys",
    "ledger",
    "metrics",
    "pool",
    "questions",
    "run_leases",
    "runs",
    "series",
    "tables",
    "traces",
]
