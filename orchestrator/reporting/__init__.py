"""What a run shows while it works: in the terminal, in its log, and in Prefect, as artifacts, progress and results."""
