"""`python -m benchmarks NAME …` is `coevo bench NAME …`, without an installed command."""

from __future__ import annotations

import sys

from orchestrator.cli import app

if __name__ == "__main__":
    app(["bench", *sys.argv[1:]])
