"""The measured claims of the docs, one file each: `python -m benchmarks NAME --json`. They are not in the wheel."""
