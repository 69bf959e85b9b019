"""The tables that `coevo compare` prints, and `coevo run` at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from core.statistics.estimates import Estimate
from core.statistics.seeds import Difference
from orchestrator.cli.terminal import wide
from services.comparison import SCORES, ArmFigures, Comparison, Point
from services.model_comparison import Cell, ModelComparison, needed

_TITLES = {"greedy": "greedy", "majority": "majority", "pass_at_1": "pass@1", "label_accuracy": "labels"}
_ARM_WIDTH = 28  # characters of an arm's name, which folds, of its seeds and iteration, and of the frame
_MODEL_WIDTH, _CELL_WIDTH = 16, 16  # characters of a model's name, which folds, and of "-10.0 to +10.0" with spaces


def show(comparison: Comparison) -> None:
    """Print the arms of an experiment, or runs, after their last iterations."""
    console = wide()
    names = [*SCORES, *(["label_accuracy"] if _has_labels(comparison) else [])]
    for shown in _fitting(comparison, names, console.width - _ARM_WIDTH):
        console.print(_table(comparison, shown))
    if any(arm.settings for arm in comparison.arms):
        console.print(_settings_table(comparison))
    for line in _remarks(comparison):
        console.print(line, markup=False)


def _fitting(comparison: Comparison, names: Sequence[str], width: int) -> Iterator[list[str]]:
    """The names of the figures, table by table, so that each table fits a terminal of `width` columns."""
    shown: list[str] = []
    left = width
    for name in names:
        lines = [line for arm in comparison.arms for line in _figure(arm, name).splitlines()]
        needed_here = 2 + max(map(len, [_TITLES[name], *lines]))
        if shown and needed_here > left:
            yield shown
            shown, left = [], width
        shown, left = [*shown, name], left - needed_here
    yield shown


def _table(comparison: Comparison, names: Sequence[str]) -> Table:
    """One row for each arm: its figures after the last iteration, and below each its difference to the baseline."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, padding=(0, 1, 0, 0))
    table.title = f"{comparison.benchmark}, {comparison.questions:,} questions, after the last iteration t: percent"
    table.add_column("arm", overflow="fold", min_width=12)
    table.add_column("seeds", justify="right")
    table.add_column("t", justify="right")
    for name in names:
        table.add_column(_TITLES[name], no_wrap=True)
    for arm in comparison.arms:
        table.add_row(arm.arm, str(len(arm.runs)), str(arm.iteration), *(_figure(arm, name) for name in names))
    return table


def _settings_table(comparison: Comparison) -> Table:
    """The settings in which the arms differ; a cell is empty where an arm has no such setting."""
    table = Table("setting", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="settings that differ")
    for arm in comparison.arms:
        table.add_column(arm.arm, overflow="fold")
    for name in sorted({name for arm in comparison.arms for name in arm.settings}):
        values = (escape(str(arm.settings[name])) if name in arm.settings else "" for arm in comparison.arms)
        table.add_row(name, *values)
    return table


def _has_labels(comparison: Comparison) -> bool:
    return any(_point(arm, "label_accuracy") for arm in comparison.arms)


def _point(arm: ArmFigures, name: str) -> Point | None:
    return next((point for point in arm.curves.get(name, []) if point.iteration == arm.iteration), None)


def _figure(arm: ArmFigures, name: str) -> str:
    point, difference = _point(arm, name), arm.differences.get(name)
    if point is None:
        return ""
    lines = [f"{100 * point.mean:.1f}"]
    if point.interval is not None:
        lines.append(f"{100 * point.interval.lo:.1f} to {100 * point.interval.hi:.1f}")
    return "\n".join([*lines, *(_differences(difference) if difference else ())])


def _differences(difference: Difference) -> Iterator[str]:
    """The difference, its interval over seeds (s) with p, and that over the choice of questions (q)."""
    yield f"{100 * difference.value:+.1f}"
    if test := difference.over_seeds:
        yield f"{_points(test.estimate, '…')} s"
        values = (("p", test.p), ("sign p", test.sign_p))
        yield from (f"{name} = {p:.2g}" for name, p in values if p is not None)
    yield f"{_points(difference.over_questions, '…')} q"


def _points(estimate: Estimate, to: str = " to ") -> str:
    return f"{100 * estimate.lo:+.1f}{to}{100 * estimate.hi:+.1f}"


def _remarks(comparison: Comparison) -> Iterator[str]:
    yield "First the mean over seeds, and its 95% interval over seeds if there are several."
    yield from comparison.remarks
    tests = [figure.over_seeds for arm in comparison.arms for figure in arm.differences.values()]
    if tests:
        yield "q marks the interval over the choice of questions" + (", s that over seeds." if any(tests) else ".")
    if any(test.sign_p is not None for test in tests if test):
        yield "p is that of the t test over seeds, sign p that of the exact sign test."
    if _has_labels(comparison):
        yield "labels: the share of right pseudo-labels among the kept questions, by the run's oracle."
    if unfinished := dict.fromkeys(run for arm in comparison.arms for run in arm.unfinished):
        yield f"Not counted, since they have not ended: {', '.join(unfinished)}"


def show_models(comparison: ModelComparison, commands: Mapping[str, str]) -> None:
    """Print models on benchmarks and their average. `commands` make the missing evaluations of each model."""
    console = wide()
    columns = [*_columns(comparison)]
    fitting = max(1, (console.width - _MODEL_WIDTH) // _CELL_WIDTH)
    for start in range(0, len(columns), fitting):
        console.print(_models_table(comparison, columns[start : start + fitting]))
    console.print("First the figure and its 95% interval over the choice of questions.")
    if len(comparison.rows) > 1:
        first = comparison.rows[0].model
        console.print(
            f"Then the difference to {first} on the same questions, likewise. It says nothing about another training.",
            markup=False,
        )
    for metric in dict.fromkeys(row.metric for row in comparison.rows):
        without = [
            benchmark.name
            for benchmark in comparison.benchmarks
            if benchmark.evaluations and benchmark.samples < needed(metric)
        ]
        if without:
            console.print(f"{metric}: without {', '.join(without)}, which have fewer samples.", markup=False)
    for model, names in comparison.missing.items():
        missing = f"{model}: no evaluation to compare on {', '.join(names)}. This makes it: {commands[model]}"
        console.print(missing, markup=False, soft_wrap=True)


Column = tuple[str, list[Cell | None]]  # heading, and the cell of each row


def _columns(comparison: ModelComparison) -> Iterator[Column]:
    """The benchmarks and their average; columns without a figure are left out."""
    for benchmark in comparison.benchmarks:
        name = escape(Path(benchmark.name).name)
        metric = benchmark.metric if comparison.rows[0].metric is None and benchmark.evaluations else ""
        heading = "\n".join(filter(None, (name, metric, f"n = {benchmark.questions:,}")))
        if any(benchmark.name in row.cells for row in comparison.rows):
            yield heading, [row.cells.get(benchmark.name) for row in comparison.rows]
    if any(row.average for row in comparison.rows):
        yield "average", [row.average for row in comparison.rows]


def _models_table(comparison: ModelComparison, columns: Sequence[Column]) -> Table:
    """Some columns of the table, which may be wider than the terminal; one row for each model and metric."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, padding=(0, 1, 0, 0))
    table.title = "percent right"
    table.add_column("model", overflow="fold", min_width=8)
    for heading, _ in columns:
        table.add_column(heading, no_wrap=True)
    for i, row in enumerate(comparison.rows):
        name = "\n".join(filter(None, (escape(row.model), row.metric)))
        table.add_row(name, *(_model_cell(cells[i]) for _, cells in columns))
    return table


def _model_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    lines = [f"{100 * cell.figure.value:.1f}", f"{100 * cell.figure.lo:.1f} to {100 * cell.figure.hi:.1f}"]
    if cell.difference is not None:
        lines += [f"{100 * cell.difference.value:+.1f}", _points(cell.difference)]
    return "\n".join(lines)
