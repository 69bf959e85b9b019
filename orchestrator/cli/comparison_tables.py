"""The tables that `coevo compare` prints, and `coevo run` at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from core.statistics.estimates import Estimate
from orchestrator.cli.terminal import wide
from services.comparison.models import Cell, ModelComparison, needed
from services.comparison.runs import SCORES, ArmFigures, ArmPoint, Comparison

_TITLES = {"greedy": "greedy", "majority": "majority", "pass_at_1": "pass@1", "label_accuracy": "labels"}
_ARM_WIDTH = 28  # characters of an arm's name, which folds, of its seeds and iteration, and of the frame
_MODEL_WIDTH, _CELL_WIDTH = 16, 16  # characters of a model's name, which folds, and of "-10.0 to +10.0" with spaces


def show(comparison: Comparison) -> None:
    """Print the arms of an experiment, or runs, after their last iterations."""
    console = wide()
    has_labels = any(_point(arm, "label_accuracy") for arm in comparison.arms)
    # One table, or several, each of which fits the terminal. A row is an arm: its figures, below them the differences.
    shown, left = list[list[str]]([[]]), console.width - _ARM_WIDTH
    for name in [*SCORES, *(["label_accuracy"] if has_labels else [])]:
        lines = [line for arm in comparison.arms for line in _figure(arm, name).splitlines()]
        width = 2 + max(map(len, [_TITLES[name], *lines]))
        if shown[-1] and width > left:
            shown.append([])
            left = console.width - _ARM_WIDTH
        shown[-1].append(name)
        left -= width
    for names in shown:
        table = Table(box=SIMPLE_HEAD, show_lines=True, padding=(0, 1, 0, 0))
        table.title = f"{comparison.benchmark}, {comparison.questions:,} questions, after the last iteration t: percent"
        table.add_column("arm", overflow="fold", min_width=12)
        table.add_column("seeds", justify="right")
        table.add_column("t", justify="right")
        for name in names:
            table.add_column(_TITLES[name], no_wrap=True)
        for arm in comparison.arms:
            table.add_row(arm.arm, str(len(arm.runs)), str(arm.iteration), *(_figure(arm, name) for name in names))
        console.print(table)
    if settings := sorted({name for arm in comparison.arms for name in arm.settings}):
        table = Table("setting", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="settings that differ")
        for arm in comparison.arms:
            table.add_column(arm.arm, overflow="fold")
        for name in settings:  # a cell is empty where an arm has no such setting
            table.add_row(name, *(escape(str(arm.settings.get(name, ""))) for arm in comparison.arms))
        console.print(table)
    for line in _remarks(comparison, has_labels):
        console.print(line, markup=False)


def _point(arm: ArmFigures, name: str) -> ArmPoint | None:
    return next((point for point in arm.curves.get(name, []) if point.iteration == arm.iteration), None)


def _figure(arm: ArmFigures, name: str) -> str:
    """The mean with its interval; the difference, its interval over seeds (s) with p, and that over questions (q)."""
    point, difference = _point(arm, name), arm.differences.get(name)
    if point is None:
        return ""
    lines = [f"{100 * point.mean:.1f}"]
    if point.interval is not None:
        lines.append(f"{100 * point.interval.lo:.1f} to {100 * point.interval.hi:.1f}")
    if difference is not None:
        lines.append(f"{100 * difference.value:+.1f}")
        if test := difference.over_seeds:
            lines.append(f"{_points(test.estimate, '…')} s")
            values = (("p", test.p), ("sign p", test.sign_p))
            lines += [f"{name} = {p:.2g}" for name, p in values if p is not None]
        lines.append(f"{_points(difference.over_questions, '…')} q")
    return "\n".join(lines)


def _points(estimate: Estimate, to: str = " to ") -> str:
    return f"{100 * estimate.lo:+.1f}{to}{100 * estimate.hi:+.1f}"


def _remarks(comparison: Comparison, has_labels: bool) -> Iterator[str]:
    if any(len(arm.runs) > 1 for arm in comparison.arms):
        yield "First the mean over seeds, and its 95% interval over seeds."
    yield from comparison.remarks
    tests = [figure.over_seeds for arm in comparison.arms for figure in arm.differences.values()]
    if tests:
        yield "q marks the interval over the choice of questions" + (", s that over seeds." if any(tests) else ".")
    if any(test.sign_p is not None for test in tests if test):
        yield "p is that of the t test over seeds, sign p that of the exact sign test."
    if has_labels:
        yield "labels: the share of right pseudo-labels among the kept questions, by the run's oracle."
    if unfinished := dict.fromkeys(run for arm in comparison.arms for run in arm.unfinished):
        yield f"Not counted, since they have not ended: {', '.join(unfinished)}"


def show_models(comparison: ModelComparison, commands: Mapping[str, str]) -> None:
    """Print models on benchmarks and their average. `commands` make the missing evaluations of each model."""
    console, rows = wide(), comparison.rows
    columns = list[tuple[str, list[Cell | None]]]()  # heading, and the cell of each row; none without a figure
    for benchmark in comparison.benchmarks:
        if any(benchmark.name in row.cells for row in rows):
            name = escape(Path(benchmark.name).name)
            metric = benchmark.metric if rows[0].metric is None and benchmark.evaluations else ""
            heading = "\n".join(filter(None, (name, metric, f"n = {benchmark.questions:,}")))
            columns.append((heading, [row.cells.get(benchmark.name) for row in rows]))
    if any(row.average for row in rows):
        columns.append(("average", [row.average for row in rows]))
    fitting = max(1, (console.width - _MODEL_WIDTH) // _CELL_WIDTH)
    for start in range(0, len(columns), fitting):
        table = Table(box=SIMPLE_HEAD, show_lines=True, padding=(0, 1, 0, 0), title="percent right")
        table.add_column("model", overflow="fold", min_width=8)
        for heading, _ in columns[start : start + fitting]:
            table.add_column(heading, no_wrap=True)
        for i, row in enumerate(rows):
            name = "\n".join(filter(None, (escape(row.model), row.metric)))
            table.add_row(name, *(_model_cell(cells[i]) for _, cells in columns[start : start + fitting]))
        console.print(table)
    console.print("First the figure and its 95% interval over the choice of questions.")
    print_line = partial(console.print, markup=False)
    if len(rows) > 1:
        about = "on the same questions, likewise. It says nothing about another training."
        print_line(f"Then the difference to {rows[0].model} {about}")
    for asked in dict.fromkeys(row.metric for row in rows):
        fewer = [of for of in comparison.benchmarks if of.evaluations and of.samples < needed(asked)]
        if fewer:
            print_line(f"{asked}: without {', '.join(of.name for of in fewer)}, which have fewer samples.")
    for model, names in comparison.missing.items():
        missing = f"{model}: no evaluation to compare on {', '.join(names)}. This makes it: {commands[model]}"
        print_line(missing, soft_wrap=True)


def _model_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    lines = [f"{100 * cell.figure.value:.1f}", f"{100 * cell.figure.lo:.1f} to {100 * cell.figure.hi:.1f}"]
    if cell.difference is not None:
        lines += [f"{100 * cell.difference.value:+.1f}", _points(cell.difference)]
    return "\n".join(lines)
