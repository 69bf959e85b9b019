"""`coevo matrix`: every Solver of a run on every iteration's questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.settings.parsing import parse_config
from core.statistics.estimates import Estimate
from orchestrator.analysis.matrix import Cell, MatrixError, ask_all, cells, left, question_sets, solvers_of
from orchestrator.cli.terminal import AsJson, RunName, clear_errors
from orchestrator.installation import cluster
from orchestrator.installation.home import home
from orchestrator.stages.context import Context
from storage import queries
from storage.session import Store, open_store


def matrix(
    run: RunName,
    size: Annotated[int, typer.Option(help="Questions of each iteration; more than before extends the sets.")] = 200,
    oracle: Annotated[str, typer.Option(help="Whose answers are the true ones; it graded all questions.")] = "exact",
    kept: Annotated[bool, typer.Option("--kept", help="Show the figures over the kept questions only.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Ask nothing; show what was asked before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask every Solver of a run the questions of every iteration: the R-Zero paper's Table 4 (docs/matrix.md).

    What was asked before is not asked again: cut off, the same command goes on.
    """
    with clear_errors():
        store = open_store(home().database)
        if not stored:
            _ask(store, run, oracle, size)
        with store.read() as session:
            queries.runs.get_run(session, run)
            rows = cells(session, run, oracle)
        if not rows:
            raise MatrixError(f"run {run}: no Solver was asked questions that {oracle} has graded")
        if as_json:
            print(json.dumps([asdict(cell) for cell in rows], indent=1, allow_nan=False))
            return
        over = "kept" if kept else "all"
        Console().print(table([cell for cell in rows if cell.over == over], oracle))


def _ask(store: Store, run: str, oracle: str, size: int) -> None:
    with store.read() as session:
        sets = question_sets(session, run, oracle, size)
        config = parse_config(queries.runs.get_run(session, run).config, f"run {run}")
        done = not any(left(session, solver.id, sets) for solver in solvers_of(session, run))
    if not done:  # else the services may well be down
        coevo_home = home()
        ask_all(Context(coevo_home, store, cluster.join(coevo_home), run, config, 0, _tell), sets)


def _tell(done: int, total: int, what: str) -> None:
    print(f"{done} of {total} {what}" if done else what, file=sys.stderr, flush=True)


def table(rows: Sequence[Cell], oracle: str) -> Table:
    """A row a question set, a column a Solver, the pseudo-labels' accuracy last: as in the paper."""
    solvers = sorted({cell.solver for cell in rows if cell.solver}, key=lambda name: int(name.rsplit("/", 1)[1]))
    at = {(cell.questions, cell.solver): cell.figure for cell in rows}
    shown = Table("questions of", *map(_short, solvers), "pseudo-labels", box=SIMPLE_HEAD, show_lines=True)
    shown.title = f"right by {oracle}, with 95% intervals"
    for iteration in sorted({cell.questions for cell in rows}):
        row = [at.get((iteration, column)) for column in (*solvers, None)]
        shown.add_row(f"iteration {iteration}", *map(_text, row))
    return shown


def _short(solver: str) -> str:
    """`demo/solver/2` is S(2)."""
    return "S(0), base" if solver.endswith("/base/0") else f"S({solver.rsplit('/', 1)[1]})"


def _text(figure: Estimate | None) -> str:
    if figure is None:
        return "-"
    return f"{figure.value:.1%}  n {figure.n:,}\n{100 * figure.lo:.1f} to {100 * figure.hi:.1f}"
