"""The main figures of a run as a table for the terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.statistics.audits import n_text, questions_text
from core.statistics.estimates import Estimate
from orchestrator.report.measures import Iteration, RunMeasures, measure
from storage.session import Store


def summary_table(store: Store, run: str) -> Table:
    """A table with one row for each iteration: shares in percent with 95% intervals, and label accuracy with its n.

    Empty columns are left out.

    Raises `StoreError` when there is no such run.
    """
    measures = measure(store, run)
    base = measures.iterations[0].accuracy
    n = base.pass_at_1.n if base else 0
    title = f"run {run}: n = {n} {measures.held_out.lower()} questions, 95% intervals"
    rows = [_row(measures, iteration) for iteration in measures.iterations]
    shown = [name for name in rows[0] if any(row[name] for row in rows)]
    table = Table(*shown, title=title, box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    if measures.result is not None and measures.result is not measures.iterations[-1]:
        table.caption = f"its Solver is {measures.result.checkpoint}"
    return table


def _row(measures: RunMeasures, iteration: Iteration) -> dict[str, str]:
    accuracy, labels = iteration.accuracy, iteration.labels
    name = str(iteration.t) if iteration.t else "base"
    return {
        "iteration": name if iteration.stands else f"{name}, left",
        "pass@1": _percent(accuracy.pass_at_1 if accuracy else None),
        "greedy": _percent(accuracy.greedy if accuracy else None),
        f"maj@{measures.config.evaluation.samples}": _percent(accuracy.majority if accuracy else None),
        "for early stopping": _percent(iteration.validation),
        "kept": f"{labels.stats.kept} of {labels.stats.candidates}" if labels else "",
        "labels right, kept": _counted(labels.audit.accuracy_kept if labels else None, n_text),
        "labels right, all": _counted(labels.audit.accuracy_all if labels else None, n_text),
        "labels right, training": _counted(iteration.training_labels, questions_text),
    }


def _counted(estimate: Estimate | None, n_of: Callable[[Estimate], str]) -> str:
    return f"{_percent(estimate)} {n_of(estimate)}" if estimate else ""


def _percent(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"{100 * estimate.value:.1f}\n[{100 * estimate.lo:.1f}, {100 * estimate.hi:.1f}]"
