"""The report's charts. Each function takes a measured run and returns axes, or None if there is nothing to draw yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from core.statistics.accuracy import Accuracy
from core.statistics.estimates import Estimate
from core.types import TINY_BASES, Role, Verdict
from orchestrator.report import marks
from orchestrator.report.canvas import LIGHT, as_file, axes, step_colour
from orchestrator.report.labels import Audit, Labels
from orchestrator.report.measures import Iteration, RunMeasures, measure
from storage.session import Store

_MARKERS = "os^Dv"
_MANY = 6  # questions with this many operations or more share a segment
SERIES = (("pass@1", "pass", "o"), ("greedy", "greedy", "s"), ("maj@k", "majority", "^"))
VERDICTS: tuple[Verdict, ...] = ("kept", "too_easy", "too_hard", "no_majority", "malformed", "duplicate")


def curves_png(store: Store, run: str) -> bytes:
    """A small picture of a run so far: held-out accuracy, and label accuracy of the kept questions, by iteration.

    Raises `StoreError` when there is no such run.
    """
    measures = measure(store, run)
    chart = axes(f"{run}: accuracy by iteration, 95% intervals", width=5.6, height=3.4)
    _share_axis(chart, measures)
    _draw_accuracies(chart, measures)
    kept = [(t, labels.audit.accuracy_kept) for t, labels in _labelled(measures)]
    marks.line(chart, marks.present(kept), "pseudo-labels, kept", "asked", "D", dashed=True)
    marks.legend(chart, 4)
    return as_file(chart)


def accuracy(measures: RunMeasures) -> Axes | None:
    """Held-out pass@1, greedy and maj@k per iteration."""
    if not any(iteration.accuracy for iteration in measures.iterations):
        return None
    chart = axes(f"{measures.held_out} accuracy by iteration")
    _share_axis(chart, measures)
    _draw_accuracies(chart, measures)
    marks.legend(chart, 3)
    return chart


def gain(measures: RunMeasures) -> Axes | None:
    """Paired differences to the base model by iteration."""
    gains = [(iteration.t, iteration.gain) for iteration in measures.iterations if iteration.gain]
    if not gains:
        return None
    chart = axes("Gain over the base model, in points")
    chart.axhline(0, color=LIGHT["muted"], linewidth=1)
    for shift, (name, colour, marker), select in zip((-0.09, 0, 0.09), SERIES, _SELECT, strict=True):
        values = [(t + shift, marks.scaled(select(difference), 100)) for t, difference in gains]
        marks.line(chart, values, _series_name(name, measures), colour, marker)
    marks.iteration_ticks(
        chart,
        [(iteration.t, "" if iteration.stands else "left") for iteration in measures.iterations if iteration.gain],
    )
    chart.set_xlabel("iteration", color=LIGHT["muted"], fontsize=9)
    marks.legend(chart, 3)
    return chart


def by_level(measures: RunMeasures) -> Axes | None:
    """Held-out pass@1 by the benchmark's levels, with one line for each iteration."""
    scored = [iteration for iteration in measures.iterations if iteration.by_level]
    if not scored:
        return None
    chart = axes(f"{measures.held_out} pass@1 by level")
    levels = list(dict.fromkeys(level for iteration in scored for level in iteration.by_level))
    for iteration in scored:
        shift = 0.05 * (iteration.t - len(measures.iterations) / 2 + 0.5)
        points = [(levels.index(level) + shift, value) for level, value in iteration.by_level.items()]
        colour = step_colour(iteration.t, len(measures.iterations) - 1)
        marks.line(chart, points, marks.t_name(iteration.t), colour, _MARKERS[iteration.t % len(_MARKERS)])
    # Level names come from the benchmark's file, so they are cut.
    chart.set_xticks(range(len(levels)), [level[:12] for level in levels])
    meaning = " (operations in the question)" if measures.config.evaluation.benchmark in TINY_BASES else ""
    chart.set_xlabel(f"level{meaning}", color=LIGHT["muted"], fontsize=9)
    marks.percent_axis(chart)
    marks.legend(chart, 4)
    return chart


def label_accuracies(measures: RunMeasures) -> list[Axes]:
    """One chart for each oracle that graded labels, the run's own oracle first."""
    own_audits = [(t, labels.audit) for t, labels in _labelled(measures)]
    charts = [_label_accuracy("Right pseudo-labels by iteration", own_audits)]
    for oracle in measures.other_oracles:
        audits = [(t, labels.other_audits.get(oracle, Audit())) for t, labels in _labelled(measures)]
        charts.append(_label_accuracy(f"Right pseudo-labels, by {oracle}", audits))
    return [chart for chart in charts if chart is not None]


def _label_accuracy(title: str, audits: Sequence[tuple[int, Audit]]) -> Axes | None:
    """The share of pseudo-labels that one oracle finds right, over the kept questions and over all."""
    # A sample may have been drawn from the kept questions, which have no figure over all then.
    audited = [(t, audit) for t, audit in audits if audit.accuracy_all or audit.accuracy_kept]
    if not audited:
        return None
    chart = axes(title)
    kept = marks.present([(t - 0.05, audit.accuracy_kept) for t, audit in audited])
    all_asked = marks.present([(t + 0.05, audit.accuracy_all) for t, audit in audited])
    marks.line(chart, all_asked, "all asked", "asked", "s")
    marks.line(chart, kept, "kept", "pass", "o")
    marks.percent_axis(chart)
    marks.iteration_ticks(
        chart, [(t, f"{_n(audit.accuracy_kept)} of {_n(audit.accuracy_all)}") for t, audit in audited]
    )
    chart.set_xlabel("iteration; kept of all audited", color=LIGHT["muted"], fontsize=9)
    marks.legend(chart, 2)
    return chart


def training_labels(measures: RunMeasures) -> Axes | None:
    """The share of right labels among those that the Solver's method made in training, where the truth is known."""
    points = marks.present([(iteration.t, iteration.training_labels) for iteration in measures.iterations])
    if not points:
        return None
    chart = axes("Right labels in training, by iteration")
    marks.line(chart, points, "", "majority", "o")
    marks.percent_axis(chart)
    marks.iteration_ticks(chart, [(round(t), f"n = {point.n:,}") for t, point in points])
    chart.set_xlabel("iteration", color=LIGHT["muted"], fontsize=9)
    return chart


def verdicts(measures: RunMeasures) -> Axes | None:
    """The candidates' verdicts by iteration."""
    rows = [(str(t), {v: labels.verdicts.get(v, 0) for v in VERDICTS}) for t, labels in _labelled(measures)]
    return marks.stacked_bars(
        "What became of the candidates", rows, {v: v.replace("_", " ") for v in VERDICTS}, share=True
    )


def operations(measures: RunMeasures) -> Axes | None:
    """Mean number of operations, of candidates and of kept questions."""
    labelled = _labelled(measures)
    asked = marks.present([(t + 0.04, labels.operations.mean) for t, labels in labelled])
    kept = marks.present([(t - 0.04, labels.operations_kept.mean) for t, labels in labelled])
    if not asked:
        return None
    chart = axes("Difficulty: operations in a question")
    marks.line(chart, asked, "candidates", "asked", "s")
    marks.line(chart, kept, "kept", "pass", "o")
    chart.set_ylim(0, None)
    chart.margins(y=0.2)
    marks.iteration_ticks(chart, [(round(x), f"{point.n:,}") for x, point in asked])
    chart.set_xlabel("iteration; candidates that the oracle can read", color=LIGHT["muted"], fontsize=9)
    marks.legend(chart, 2)
    return chart


def operation_counts(measures: RunMeasures, kept: bool) -> Axes | None:
    """How many questions have how many operations, among the candidates or among the kept questions."""
    by_iteration = [(t, labels.operations_kept if kept else labels.operations) for t, labels in _labelled(measures)]
    rows = [(str(t), _grouped(operations.counts)) for t, operations in by_iteration if operations.counts]
    names = {n: str(n) for n in range(_MANY)} | {_MANY: f"{_MANY} +"}
    colours = [step_colour(n, _MANY) for n in names]
    title = "Operations in kept questions" if kept else "Operations in candidates"
    return marks.stacked_bars(title, rows, names, share=True, colours=colours)


def _grouped(counts: Mapping[int, int]) -> dict[int, int]:
    few = {n: counts.get(n, 0) for n in range(_MANY)}
    return few | {_MANY: sum(count for n, count in counts.items() if n >= _MANY)}


def ill_posed(measures: RunMeasures) -> Axes | None:
    """The share of ill-posed questions, by which a Challenger can earn its reward without asking hard ones."""
    points = marks.present([(t, labels.audit.ill_posed) for t, labels in _labelled(measures)])
    if not points:
        return None
    chart = axes("Ill-posed questions, of those asked")
    marks.line(chart, points, "", "greedy", "o")
    highest = max(point.hi for _, point in points)
    marks.percent_axis(chart, top=max(0.05, min(1.0, 1.15 * highest)))
    marks.iteration_ticks(chart, [(round(t), f"n = {point.n:,}") for t, point in points])
    chart.set_xlabel("iteration", color=LIGHT["muted"], fontsize=9)
    return chart


def histogram(measures: RunMeasures, iteration: Iteration) -> Axes | None:
    """A histogram of the questions asked by p_hat, with the band; those with a right label have their own colour."""
    if iteration.labels is None:
        return None
    whose = f"Iteration {iteration.t}" if iteration.t else "Base model"
    chart = axes(f"{whose}, n = {iteration.labels.asked:,} asked", height=2.7)
    counts, p_hats = iteration.labels.histogram, iteration.labels.histogram.p_hat
    width = 0.82 / max(len(p_hats) - 1, 1)
    if limits := measures.config.dataset.limits:
        low, high = limits
        half_bin = 0.5 / max(len(p_hats) - 1, 1)
        chart.axvspan(low - half_bin, high + half_bin, color=LIGHT["band"], linewidth=0, zorder=0, label="band")
    right = counts.right or (0,) * len(p_hats)
    not_right = np.subtract(counts.counts, right)
    if counts.right:
        chart.bar(p_hats, right, width, color=LIGHT["right"], label="label right")
        chart.bar(p_hats, not_right, width, right, color=LIGHT["wrong"], label="label not right")
    else:
        chart.bar(p_hats, not_right, width, color=LIGHT["asked"], label="not audited")
    chart.set_ylim(0, 1.08 * max(1, *(max(i.labels.histogram.counts) for i in measures.iterations if i.labels)))
    chart.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    chart.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
    chart.set_xlabel("p_hat", color=LIGHT["muted"], fontsize=9)
    marks.legend(chart, 3)
    return chart


def training(measures: RunMeasures, role: Role, name: str, title: str) -> Axes | None:
    """One metric of one role's training, by step through all iterations."""
    values = measures.metric(role, name)
    if not any(metric.value is not None for metric in values):
        return None
    chart = axes(title, width=2.9, height=2.3, pad=17)
    last = len(measures.iterations) - 1
    start = 0
    for t in sorted({metric.iteration for metric in values}):
        metrics = [metric for metric in values if metric.iteration == t]
        steps = [start + step for step in range(1, len(metrics) + 1)]
        numbers = [np.nan if metric.value is None else metric.value for metric in metrics]
        chart.plot(steps, numbers, color=step_colour(t, last), linewidth=1.8, marker="o", markersize=2.5)
        if start:
            chart.axvline(start + 0.5, color=LIGHT["line"], linewidth=0.9)
        marks.note(chart, start + len(metrics) / 2 + 0.5, f"t = {t}")
        start += len(metrics)
    chart.set_xlim(0.5, start + 0.5)
    chart.set_ylim(bottom=min(0.0, chart.get_ylim()[0]) if name in {"kl", "reward_mean"} else None)
    chart.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    chart.set_xlabel("step", color=LIGHT["muted"], fontsize=9)
    return chart


def seconds(measures: RunMeasures, stages: Sequence[str]) -> Axes | None:
    """The time of each stage by iteration."""
    rows = [(marks.t_name(i.t), {stage: i.seconds.get(stage, 0.0) for stage in stages}) for i in measures.iterations]
    unit, divisor = ("minutes", 60) if max((sum(row.values()) for _, row in rows), default=0) > 180 else ("seconds", 1)
    rows = [(name, {stage: value / divisor for stage, value in row.items()}) for name, row in rows if sum(row.values())]
    return marks.stacked_bars(f"Time by stage, in {unit}", rows, {s: s.replace("_", " ") for s in stages}, share=False)


_SELECT: tuple[Callable[[Accuracy], Estimate], ...] = (
    lambda accuracy: accuracy.pass_at_1,
    lambda accuracy: accuracy.greedy,
    lambda accuracy: accuracy.majority,
)


def _labelled(measures: RunMeasures) -> list[tuple[int, Labels]]:
    return [(iteration.t, iteration.labels) for iteration in measures.iterations if iteration.labels]


def _draw_accuracies(chart: Axes, measures: RunMeasures) -> None:
    scored = [(iteration.t, iteration.accuracy) for iteration in measures.iterations if iteration.accuracy]
    for shift, (name, colour, marker), select in zip((-0.05, 0, 0.05), SERIES, _SELECT, strict=True):
        points = [(t + shift, select(accuracy)) for t, accuracy in scored]
        marks.line(chart, points, _series_name(name, measures), colour, marker)


def _share_axis(chart: Axes, measures: RunMeasures) -> None:
    marks.percent_axis(chart)
    marks.iteration_ticks(
        chart, [(iteration.t, "" if iteration.stands else "left") for iteration in measures.iterations]
    )
    chart.set_xlabel("iteration", color=LIGHT["muted"], fontsize=9)


def _series_name(name: str, measures: RunMeasures) -> str:
    return name.replace("@k", f"@{measures.config.evaluation.samples}")


def _n(estimate: Estimate | None) -> str:
    return f"{estimate.n:,}" if estimate else "0"
