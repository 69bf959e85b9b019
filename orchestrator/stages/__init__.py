"""The stages of a run, one file each: the file `STAGE.py` has the function `STAGE`, which takes a `Context`.

A stage does its work in batches and returns its last write, which the ledger commits together with the mark "done". It
reads its inputs from the store and derives every seed from its key. When it runs again after a crash, it makes the
missing rows, and they are the same as without the crash. `plan.py` has the order of the stages, `by_name.py` finds
their functions, and `context.py` and `chain.py` have what they share. A stage calls no other stage.
"""
