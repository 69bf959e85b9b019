"""The main figures of a run as a table of texts."""

from __future__ import annotations

from collections.abc import Callable

from core.statistics.audits import n_text, questions_text
from core.statistics.estimates import Estimate
from services.run_report.measures import RunMeasures


def summary_rows(measures: RunMeasures) -> list[dict[str, str]]:
    """A row for each iteration, from column to text: shares in percent with 95% intervals, and label accuracy with its
    n. Columns that are empty in all rows are left out.
    """
    rows, makers = [], {t: maker for maker, iterations in measures.inherited.items() for t in iterations}
    for iteration in measures.iterations:
        accuracy, labels = iteration.accuracy, iteration.labels
        name = str(iteration.t) if iteration.t else "base"
        name += f" of {makers[iteration.t]}" if iteration.t in makers else ""
        rows.append(
            {
                "iteration": name if iteration.stands else f"{name}, left",
                "pass@1": _percent(accuracy.pass_at_1 if accuracy else None),
                "greedy": _percent(accuracy.greedy if accuracy else None),
                f"maj@{measures.config.evaluation.samples}": _percent(accuracy.majority if accuracy else None),
                "for early stopping": _percent(iteration.validation),
                "kept": f"{labels.stats.kept} of {labels.stats.candidates}" if labels else "",
                "refused": str(labels.stats.refused) if labels and labels.stats.refused else "",
                "labels right, kept": _counted(labels.audit.accuracy_kept if labels else None, n_text),
                "labels right, all": _counted(labels.audit.accuracy_all if labels else None, n_text),
                "labels right, training": _counted(iteration.training_labels, questions_text),
            }
        )
    shown = [name for name in rows[0] if any(row[name] for row in rows)]
    return [{name: row[name] for name in shown} for row in rows]


def _counted(estimate: Estimate | None, n_of: Callable[[Estimate], str]) -> str:
    return f"{_percent(estimate)} {n_of(estimate)}" if estimate else ""


def _percent(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"{100 * estimate.value:.1f}\n[{100 * estimate.lo:.1f}, {100 * estimate.hi:.1f}]"
