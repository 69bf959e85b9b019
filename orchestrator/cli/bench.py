"""`coevo bench`: measure the claims of the README."""

from __future__ import annotations

import importlib
import json
from typing import Annotated, Any

import typer

from orchestrator.cli.terminal import AsJson, clear_errors
from orchestrator.runs import RunError

BENCHES = (
    *("overhead", "startup", "sampler", "trainer", "serving", "swap"),
    *("similarity", "voting", "store", "rest", "methods", "collapse", "sets", "replay"),
)


def bench(
    name: Annotated[str, typer.Argument(help=f"Name of the benchmark: {', '.join(BENCHES)}.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Run a benchmark that measures claims of the README on this machine. --json describes the machine too."""
    with clear_errors():
        if name not in BENCHES:
            raise RunError(f"bench: expected one of {', '.join(BENCHES)}, got {name!r}")
        result = importlib.import_module(f"benchmarks.{name}").run()
        _print(result, as_json)


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        # imported by name, because no package may import the benchmarks
        machine = importlib.import_module("benchmarks.machine").machine()
        print(json.dumps({"machine": machine, **result}, indent=1))
        return
    for key, value in result.items():
        print(f"{key}: {value}")
