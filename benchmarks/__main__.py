"""`python -m benchmarks NAME [ARGUMENT …] [--json]`: measure claims of the docs on this machine.

It prints the machine and the tables that the docs have, or with --json all figures and the machine. `grading` takes the
benchmarks whose answers it grades, `gpu` a model's shape, `rest` the rows of its store, `soak` its seconds.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from typing import Any

from benchmarks import targets
from benchmarks.machine import in_words, machine

NAMES = (
    *("overhead", "startup", "sampler", "trainer", "serving", "swap"),
    *("store", "rest", "soak", "methods", "collapse", "refill", "grading_cases", "grading", "gpu"),
)
_WITH_ARGUMENTS = ("grading", "gpu", "rest", "soak")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.arguments and options.name not in _WITH_ARGUMENTS:
        parser.error(f"{options.name}: expected no further arguments, got {' '.join(options.arguments)}")
    module = import_module(f"benchmarks.{options.name}")
    figures: dict[str, Any] = module.run(*options.arguments)
    if options.json:
        print(json.dumps({"machine": machine(), **figures}, indent=1))
    elif options.name in targets.FIGURES:
        print(f"{in_words(machine())}\n\n{targets.table(options.name, figures)}")
    elif hasattr(module, "tables"):
        print(module.tables(figures))
    else:
        print("\n".join(f"{name}: {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
