"""The stages of a run, one function each; `orchestrator.plan` has their order.

A stage does its work in batches and returns its last write, which the ledger commits together with the mark "done". It
reads its inputs from the store and derives every seed from its key. When it runs again after a crash, it makes the rows
that are missing, and they are the same rows.
"""
