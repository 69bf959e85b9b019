"""The flow runner: the process that takes runs from Prefect, starts their flows, and ends those whose process died."""
