"""`coevo backup` and `coevo restore`: runs in an archive, and back in this or another installation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from orchestrator.cli.terminal import AsJson, clear_errors, suggest_runs
from orchestrator.disk.backup import back_up
from orchestrator.disk.restore import restore as restore_archive
from orchestrator.installation.home import home
from storage.session import open_store

_SHOWN = 20  # runs and stages that the text shows; --json prints all


def backup(
    target: Annotated[Path, typer.Argument(help="The file to write, such as runs.zip.", show_default=False)],
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]…",
            help="Names of the runs; without any, all runs and evaluations.",
            show_default=False,
            autocompletion=suggest_runs,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write runs to an archive that `coevo restore` reads, into SQLite or PostgreSQL: rows, checkpoints, optimisers and
    texts (docs/backup.md).

    The archive appears when it is complete. Runs may go on meanwhile: it has what was stored when the command began.
    """
    with clear_errors():
        coevo_home = home()
        made = back_up(coevo_home, open_store(coevo_home.database), target.absolute(), runs or ())
    if as_json:
        print(json.dumps(asdict(made), indent=1, default=str))
        return
    _show_runs(made.runs)
    if made.unfinished:
        print(f"not finished, so they go on where they were: {_some(made.unfinished)}")
    print(f"{made.archive}: {len(made.runs)} runs, {made.files} files, {decimal(made.bytes)}")


def restore(
    source: Annotated[Path, typer.Argument(help="The archive that `coevo backup` wrote.", show_default=False)],
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]…", help="Names of the runs; without any, all of the archive.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the whole archive against this home, and write nothing.")
    ] = False,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Let the REST API continue these runs, with the programs that their settings name."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore runs of an archive that `coevo backup` wrote into this home and its database (docs/backup.md).

    The whole archive is checked first. Nothing is written if it is damaged, or if a run of the same name exists. What
    the settings of the runs name is listed: programs, addresses, variables with keys, files. Unless --trust is given,
    the REST API continues a run only after `coevo resume` has.
    """
    with clear_errors():
        coevo_home = home()
        store = open_store(coevo_home.database)
        restored = restore_archive(coevo_home, store, source.absolute(), runs or (), dry_run=dry_run, trusted=trust)
    if as_json:
        print(json.dumps({**asdict(restored), "restored": not dry_run}, indent=1, default=str))
        return
    _show_runs(restored.runs)
    for run, named in restored.named.items():
        for setting, value in named.items():
            print(f"run {run}: its settings name: {setting} = {value}")
    evaluations = f", {restored.evaluations} evaluations of other models" if restored.evaluations else ""
    done = "can be restored" if dry_run else "restored"
    print(f"{done}: {len(restored.runs)} runs{evaluations}, {restored.files} files, {decimal(restored.bytes)}")


def _show_runs(runs: Mapping[str, Mapping[str, int]]) -> None:
    for run, tables in [*runs.items()][:_SHOWN]:
        print(f"run {run}: rows: {', '.join(f'{table} {count:,}' for table, count in tables.items() if count)}")
    if len(runs) > _SHOWN:
        print(f"{len(runs) - _SHOWN} more runs; --json prints all")


def _some(names: Iterable[str]) -> str:
    shown = [*names]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
