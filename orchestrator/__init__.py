"""A run from its start to its end: Prefect flows, the plan, the ledger, and the `coevo` command."""
