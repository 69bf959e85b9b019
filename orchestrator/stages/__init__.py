"""The stages of a run, one function each; `orchestrator.plan` has their order.

A stage does its work in batches and returns its last write, which the ledger commits together with the mark "done".
What a stage needs it reads from the store; what it draws it draws with seeds from its key: run again after a crash, it
makes the rows that are missing, and they are the rows it would have made.
"""
