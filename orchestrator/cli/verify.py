"""`coevo store verify`: whether what is stored of a run is consistent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.terminal import AsJson, RunName, opened, print_json, printable
from orchestrator.verification.run import verify_run

_SHOWN = 20  # violations of a check, and notes, that the text shows; --json prints all
_MOST_CHARS = 1_000  # of a line


def verify(
    run: RunName,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read the files of checkpoints, only their manifests.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute what is stored of a run again from its raw rows and files, and name what differs. Nothing is changed.

    The exit code is 1 if anything is not as it should be. Stages that are not finished are left out (docs/storage.md).
    """
    verification = verify_run(*opened(), run, quick=quick)
    status = 1 if verification.violations else 0
    if as_json:
        print_json(asdict(verification) | {"violations": verification.violations})
        raise typer.Exit(status)
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(check.name) for check in verification.checks)
    for check in verification.checks:
        print(f"{check.name:<{width}}  {check.checked:>9,} checked, {_count(len(check.violations))}")
    for check in verification.checks:
        violations = [f"{row.row}: expected {row.expected}, stored is {row.stored}" for row in check.violations]
        for name, lines in (("notes", check.notes), ("violations", violations)):
            more = [f"{len(lines) - _SHOWN:,} more {name}; --json prints all"] if len(lines) > _SHOWN else []
            for line in [*lines[:_SHOWN], *more]:
                console.print(printable(f"{check.name}: {line}", _MOST_CHARS))
    if verification.left_out:
        console.print(printable(f"left out: {'; '.join(verification.left_out)}", _MOST_CHARS))
    print(f"run {verification.run}: {_count(verification.violations)}")
    raise typer.Exit(status)


def _count(violations: int) -> str:
    return f"{violations:,} violation{'' if violations == 1 else 's'}" if violations else "no violations"
