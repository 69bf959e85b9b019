"""`coevo bench`: measure the claims of the README."""

from __future__ import annotations

import importlib
import json
from typing import Annotated, Any

import typer

from core.suggestions import no_such
from orchestrator.check.start import RunError
from orchestrator.cli.terminal import AsJson, clear_errors

BENCHES = (
    *("overhead", "startup", "sampler", "trainer", "serving", "swap"),
    *("similarity", "voting", "store", "rest", "methods", "collapse", "sets", "replay", "grading", "soak"),
)


def bench(
    name: Annotated[str, typer.Argument(help=f"Name of the benchmark: {', '.join(BENCHES)}.", show_default=False)],
    questions: Annotated[
        list[str] | None,
        typer.Argument(help="For `grading`: benchmarks whose answers it grades; without any, its own cases."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a benchmark that measures claims of the README on this machine. --json describes the machine too."""
    with clear_errors():
        if name not in BENCHES:
            raise RunError(f"bench {name!r}: {no_such('benchmark', BENCHES, name)}")
        if questions and name != "grading":
            raise RunError(f"bench {name}: expected no further arguments, got {' '.join(questions)}")
        measure = importlib.import_module(f"benchmarks.{name}").run
        result = measure(questions) if questions else measure()
        _print(result, as_json)


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        # imported by name, because no package may import the benchmarks
        machine = importlib.import_module("benchmarks.machine").machine()
        print(json.dumps({"machine": machine, **result}, indent=1))
        return
    for key, value in result.items():
        print(f"{key}: {value}")
