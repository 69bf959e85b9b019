"""`coevo show matrix`: evaluate every Solver of a run on every iteration's questions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.statistics.audits import n_text
from orchestrator.analysis.matrix import MatrixError, ask_all, question_sets, unanswered
from orchestrator.cli.terminal import AsJson, Kept, opened, print_json, print_progress, wide
from orchestrator.installation import cluster
from orchestrator.installation.home import home
from orchestrator.run import Run
from orchestrator.stages.context import Context
from services.evaluations.matrix import MatrixCell, cells, mean_cells
from storage import queries
from storage.session import Store


def matrix(
    runs: Annotated[
        list[str],
        typer.Argument(help="Name of the run; of several, the means over runs are shown.", show_default=False),
    ],
    size: Annotated[
        int, typer.Option(help="With --ask: questions of each iteration; a larger number than before extends the sets.")
    ] = 200,
    oracle: Annotated[
        str, typer.Option(help="Oracle whose answers count as true; a sample that it has graded is weighted to all.")
    ] = "exact",
    kept: Kept = False,
    ask: Annotated[bool, typer.Option("--ask", help="First ask the Solvers what they have not answered yet.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the accuracy of every Solver on the questions of every iteration, as in R-Zero's Table 4.

    --ask makes the table: each Solver is served and asked. Stored answers are not asked for again. If the command is
    interrupted, run it again to go on (docs/evaluation.md).
    """
    if len(set(runs)) < len(runs):
        raise MatrixError(f"runs: expected different ones, got {' '.join(runs)}")
    _, store = opened()
    if ask:
        for run in runs:
            _ask(store, run, oracle, size)
    of_runs = []
    for run in runs:
        with store.read() as session:
            queries.runs.get_run(session, run)
            of_runs.append([cell for cell in cells(session, run) if cell.oracle == oracle])
        if not of_runs[-1]:
            raise MatrixError(f"run {run}: no results are stored for the oracle {oracle}; add --ask to ask the Solvers")
    rows = of_runs[0] if len(of_runs) == 1 else mean_cells(of_runs)
    if as_json:
        print_json(rows, allow_nan=False)
        return
    shown = [cell for cell in rows if cell.over == ("kept" if kept else "all")]
    if not shown:
        drawn_from = "" if kept else ": its sample was drawn from the kept ones, so add --kept"
        over = "kept questions" if kept else "all questions"
        raise MatrixError(f"run {' '.join(runs)}: {oracle} has no results over {over}{drawn_from}")
    wide().print(table(shown, oracle, len(runs)))


def _ask(store: Store, run: str, oracle: str, size: int) -> None:
    with store.read() as session:
        sets = question_sets(session, run, oracle, size)
        config = queries.runs.config_of_run(session, run)
        solvers = queries.checkpoints.solvers_of(session, run)
        lacking = [solver for solver in solvers if unanswered(session, solver.id, sets)]
    if removed := [solver.id for solver in lacking if solver.files_removed]:
        files = f"their files were removed, as the run's checkpoints.keep says: {', '.join(removed)}"
        print(f"not asked, because {files}", file=sys.stderr)
    if len(lacking) > len(removed):  # a complete matrix is shown even if the services are down
        coevo_home = home()
        asked = Run(run, coevo_home, store, cluster.join(coevo_home), config)
        ask_all(Context(asked, 0, "evaluate", print_progress), sets)


def table(rows: Sequence[MatrixCell], oracle: str, runs: int = 1) -> Table:
    """One row for each question set, one column for each Solver, last the pseudo-labels' accuracy, as in the paper."""
    solvers = sorted({cell.solver for cell in rows if cell.solver}, key=lambda name: int(name.rsplit("/", 1)[1]))
    figures = {(cell.questions, cell.solver): cell.figure for cell in rows}
    names = ["S(0), base" if solver.endswith("base/0") else f"S({solver.rsplit('/', 1)[1]})" for solver in solvers]
    result = Table("questions of", *names, "pseudo-labels", box=SIMPLE_HEAD, show_lines=True)
    over_runs = f": means over {runs} runs" if runs > 1 else ""
    result.title = f"share right according to {oracle}, with 95% intervals{over_runs}"
    for iteration in sorted({cell.questions for cell in rows}):
        cells = []
        for figure in (figures.get((iteration, column)) for column in (*solvers, None)):
            n = f"  {n_text(figure)}" if figure and runs == 1 else ""  # of a mean over runs it is in the title
            interval = f"{100 * figure.lo:.1f} to {100 * figure.hi:.1f}" if figure else ""
            cells.append(f"{figure.value:.1%}{n}\n{interval}" if figure else "-")
        result.add_row(f"iteration {iteration}", *cells)
    return result
