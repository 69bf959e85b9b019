"""`coevo store du`, `gc`, `runs delete` and `runs thin`: what the files of this machine take, and their removal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Column, Table

from core.settings.config import Retention
from orchestrator.cli.addresses import known_prefect
from orchestrator.cli.terminal import AsJson, opened, print_json
from orchestrator.disk import deletion, garbage
from orchestrator.disk.files import KINDS, DiskError
from orchestrator.disk.retention import Removal, removable, remove_unkept
from orchestrator.disk.usage import Usage, usage, usage_of
from storage import queries

if TYPE_CHECKING:
    from services.prefect.client import Prefect

_SHOWN = 20  # files that a table shows; --json prints all

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would go, and remove nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Without a terminal, this is needed.")]


def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of the runs.", show_default=False)],
    evaluations: Annotated[
        bool, typer.Option("--evaluations", help="Also delete what `coevo evaluate` measured on the runs' checkpoints.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete runs of this machine: their rows, checkpoints, texts, work and exports (docs/storage.md).

    A requested run that never began is deleted in the same way. A run is refused while a process works on it, while
    Prefect has an active flow run of it, and while another run, such as a fork, or an evaluation refers to it. Its
    report stays.
    """
    coevo_home, store = opened()
    names = [*dict.fromkeys(names)]
    flow_runs = {name: deletion.refuse_at_work(store, name, _prefect()) for name in names}
    options = {name: {"evaluations": evaluations, "in_prefect": bool(flow_runs[name])} for name in names}
    plans = [deletion.planned(coevo_home, store, name, **options[name]) for name in names]
    if not as_json:
        for plan in plans:
            counts = ", ".join(f"{table} {count:,}" for table, count in plan.rows.items())
            print(f"run {plan.run}: rows: {counts or 'none'}")
            if plan.evaluations:
                print(f"by `coevo evaluate`: {', '.join(plan.evaluations)}")
            for files in plan.files:
                print(f"{decimal(files.bytes):>10}  {files.path}")
            if plan.elsewhere:
                print(f"not in this home, so it stays: {', '.join(plan.elsewhere[:_SHOWN])}")
    if not dry_run:
        _ask(f"Delete {', '.join(names)}?", yes)
        plans = [deletion.delete(coevo_home, store, name, **options[name]) for name in names]
        deletion.delete_flow_runs(_prefect(), chain.from_iterable(flow_runs.values()))
    if as_json:
        print_json([{**asdict(plan), "bytes": plan.bytes, "deleted": not dry_run} for plan in plans])
    elif not dry_run:
        print(f"deleted {', '.join(names)}: {decimal(sum(plan.bytes for plan in plans))} of files are free")


def _prefect() -> Prefect | None:
    """The Prefect server that is known here, if there is one."""
    from services.prefect.client import Prefect

    server = known_prefect()
    return Prefect(server) if server else None


def thin(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of the runs.", show_default=False)],
    keep: Annotated[
        str, typer.Option(help="best_and_last, or a number k, which also keeps every kth iteration.", metavar="WHICH")
    ] = "best_and_last",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove the checkpoints that runs need not keep. Their rows and all figures stay (docs/storage.md).

    The base model, the last checkpoints and the best ones stay, so a run can go on, and so do those that a fork has
    inherited. A run is refused while a process works on it; its setting checkpoints.keep does the same after every
    iteration.
    """
    if keep != "best_and_last" and not (keep.isdecimal() and int(keep) > 0):
        raise DiskError(f"--keep: expected best_and_last or a number of iterations from 1, got {keep!r}")
    retention = Retention.model_validate({"keep": int(keep) if keep.isdecimal() else keep})
    coevo_home, store = opened()
    names = [*dict.fromkeys(names)]
    for name in names:
        deletion.refuse_at_work(store, name, _prefect())
    removals = [item for name in names for item in removable(coevo_home, store, name, retention)]
    if not as_json:
        for item in removals:
            print(f"{decimal(item.bytes):>10}  {item.path}")
        print(f"{len(removals)} checkpoints to remove, {_sum(removals)}" if removals else "nothing to remove")
        for name in names:
            with store.read() as session:
                forks = queries.forks.forks_of(session, name)
            if forks:
                keepers = ", ".join(sorted({fork for of_iteration in forks.values() for fork in of_iteration}))
                print(f"run {name}: its checkpoints up to iteration {max(forks)} stay, for {keepers}")
    if removals and not dry_run:
        _ask(f"Remove these {len(removals)}?", yes)
        removals = [item for name in names for item in remove_unkept(coevo_home, store, name, retention)]
        if not as_json:
            print(f"removed {len(removals)}: {_sum(removals)} are free")
    if as_json:
        print_json([{**asdict(item), "removed": not dry_run} for item in removals])


def gc(
    older_than: Annotated[
        float, typer.Option(help="Leave what has changed in the last so many hours: it may be in use.", min=1)
    ] = garbage.PATIENCE / timedelta(hours=1),
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove files that crashes and old runs left in COEVO_HOME and that no row refers to (docs/storage.md)."""
    (coevo_home, store), patience = opened(), timedelta(hours=older_than)
    garbage.refuse_other_database(coevo_home, store)
    items = garbage.garbage(coevo_home, store, patience)
    if not as_json:
        table = Table(Column("path", overflow="fold"), "why", "bytes", box=SIMPLE_HEAD)
        for item in items[:_SHOWN]:
            table.add_row(escape(str(item.path)), item.why, decimal(item.bytes))
        if items:
            Console().print(table)
        more = f"; {len(items) - _SHOWN} more are not shown, --json prints all" if len(items) > _SHOWN else ""
        print(f"{len(items)} to remove, {_sum(items)}{more}" if items else "nothing to remove")
    if items and not dry_run:
        _ask(f"Remove these {len(items)}?", yes)
        items = garbage.collect(coevo_home, store, patience)
        if not as_json:
            print(f"removed {len(items)}: {_sum(items)} are free")
    if as_json:
        print_json([{**asdict(item), "removed": not dry_run} for item in items])


def _sum(items: Iterable[garbage.Garbage | Removal]) -> str:
    return decimal(sum(item.bytes for item in items))


def du(
    run: Annotated[str | None, typer.Argument(help="Show only this run, by checkpoint.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Show what takes the disk: the files of each run by kind, those of no run, and the tables of the database.

    A file with several hard links is counted once. `coevo store gc` removes what nothing refers to.
    """
    coevo_home, store = opened()
    shown = usage(coevo_home, store) if run is None else usage_of(coevo_home, store, run)
    if as_json:
        print_json(shown)
    elif isinstance(shown, Usage):
        _show_usage(shown)
    else:
        table = Table("files", "bytes", box=SIMPLE_HEAD)
        for kind in KINDS:
            table.add_row(kind, _cell(shown.kinds[kind]))
            for name, size in shown.checkpoints.items() if kind == "checkpoints" else ():
                table.add_row(f"  {escape(name)}", _cell(size))
        table.add_row("total", _cell(shown.bytes))
        Console().print(table)
        print(f"rows: {', '.join(f'{table} {count:,}' for table, count in (shown.rows or {}).items())}")


def _show_usage(shown: Usage) -> None:
    kinds = [kind for kind in KINDS if any(run.kinds[kind] for run in shown.runs)]
    table = Table(Column("run", overflow="fold"), *kinds, "total", box=SIMPLE_HEAD)
    for run in sorted(shown.runs, key=lambda run: -run.bytes):
        name = run.run if run.stored else f"{run.run} (not in the store)"
        table.add_row(escape(name), *(_cell(run.kinds[kind]) for kind in kinds), _cell(run.bytes))
    for name, size in shown.other.items():
        table.add_row(escape(name), *("" for _ in kinds), _cell(size))
    console = Console()
    console.print(table)
    print(f"in all {decimal(shown.total)} in {shown.home}; `coevo store gc` would free {decimal(shown.garbage)} of it")
    database = shown.database
    free = f", {decimal(database.free)} of it free for new rows" if database.free else ""
    tables = ", ".join(f"{name} {decimal(of_table)}" for name, of_table in [*(database.tables or {}).items()][:5])
    tables = f"; the largest tables: {tables}" if tables else ""
    print(f"database {shown.address}: {decimal(database.total)}{free}{tables}")


def _cell(size: int) -> str:
    return decimal(size) if size else ""


def _ask(question: str, yes: bool) -> None:
    """Ask on the terminal before something is removed. Raises `DiskError` if there is none, and `Abort` after a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise DiskError(f"{question} There is no terminal to ask on, so expected --yes; nothing was removed")
    typer.confirm(question, abort=True, err=True)
