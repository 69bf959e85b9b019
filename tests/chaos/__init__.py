"""`python -m tests.chaos`: kills the processes of small runs again and again, and compares what they store with a run
that was never killed (docs/storage.md)."""
