"""The tables that `coevo evaluate` and `coevo audit recheck` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from core.statistics.estimates import Estimate
from core.statistics.rechecks import Recheck
from orchestrator.cli.terminal import wide
from services.evaluations.figures import EvaluationFigures


def show(results: Sequence[EvaluationFigures], by_majority_share: bool = False) -> None:
    """Print the figures of each evaluation, its id, and the rechecks by judges; one table for each model. With
    `by_majority_share`, print another table for each evaluation."""
    console = wide()
    for model, group in groupby(results, lambda evaluated: evaluated.evaluation.model):
        of_model = [*group]
        sampled = any(evaluated.samples for evaluated in of_model)
        # One row for each benchmark. k is the number of sampled answers; without any, there is one figure, greedy.
        table = Table(box=SIMPLE_HEAD, show_lines=True, padding=(0, 1, 0, 0))
        table.title = f"{escape(model)}: percent right, with 95% intervals"
        table.add_column("benchmark", overflow="fold", min_width=9)
        for name in ("n", "k", "pass@1", "greedy", "maj@k", "pass@k") if sampled else ("n", "greedy"):
            table.add_column(name, no_wrap=True)
        for name in ("cut off", "no answer"):
            table.add_column(name, min_width=6)
        for evaluated in of_model:
            figures, last = [evaluated.greedy], evaluated.curve[-1]
            if sampled and evaluated.samples:
                figures = [evaluated.pass_at_1, evaluated.greedy, last.maj_at_k, last.pass_at_k]
            elif sampled:
                figures = [None, evaluated.greedy, None, None]
            counts = [f"{evaluated.questions:,}", *([str(evaluated.samples or "")] if sampled else [])]
            shares = [f"{share.value:.0%}" if share else "" for share in (evaluated.truncated, evaluated.unparsed)]
            table.add_row(_name(evaluated), *counts, *map(_figure, figures), *shares)
        console.print(table)
        console.print(f"evaluations: {' '.join(evaluated.evaluation.id for evaluated in of_model)}")
        if rechecked := [evaluated for evaluated in of_model if evaluated.rechecks]:
            console.print(_recounts(rechecked, sampled))
        for evaluated in of_model:
            for recheck in evaluated.rechecks:
                console.print("\n".join(_remarks(evaluated, recheck)), markup=False)
    for evaluated in results:
        if by_majority_share and evaluated.samples:
            console.print(_consistency(evaluated))


def _consistency(evaluated: EvaluationFigures) -> Table:
    """One row for each threshold on the majority's share that a question reaches (SRT, Figure 9)."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.title = f"{_name(evaluated)}: percent right, by the majority's share"
    for name in ("share", "n", "answer right", "majority right", "questions left"):
        table.add_column(name, no_wrap=True)
    for point in evaluated.by_majority_share:
        if point.answer is not None and point.majority is not None:
            figures = [_figure(estimate).replace("\n", " ") for estimate in (point.answer, point.majority, point.left)]
            table.add_row(f"{point.threshold:.0%}", f"{point.answer.n:,}", *figures)
    return table


def _recounts(results: Sequence[EvaluationFigures], sampled: bool) -> Table:
    """The accuracy of the rechecked benchmarks by the grader and by each judge."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, padding=(0, 1, 0, 0))
    table.title = "rechecked by a judge: percent right, with 95% intervals"
    for name in ("benchmark", "who calls an answer right"):
        table.add_column(name, overflow="fold", min_width=9)
    for name in ("pass@1", "greedy") if sampled else ("greedy",):
        table.add_column(name, no_wrap=True)
    for evaluated in results:
        rows = [("the grader", evaluated.pass_at_1, evaluated.greedy)]
        for recheck in evaluated.rechecks:
            for recount, who in (
                (recheck.failures_rechecked, f"the grader or {recheck.judge}"),
                (recheck.judge_alone, f"{recheck.judge} alone"),
            ):
                if recount is not None:
                    rows.append((who, recount.pass_at_1, recount.greedy))
        for who, pass_at_1, greedy in rows:
            figures = [pass_at_1 if evaluated.samples else None, greedy] if sampled else [greedy]
            table.add_row(_name(evaluated), who, *map(_figure, figures))
    return table


def _remarks(evaluated: EvaluationFigures, recheck: Recheck) -> Iterator[str]:
    """How much of an evaluation a judge has rechecked, and how often it contradicts the grader."""
    where = f"{Path(evaluated.evaluation.benchmark).name}, {recheck.judge}"
    yield f"{where}: {recheck.judged:,} of {recheck.answers:,} different answers judged, {recheck.unclear:,} unclear"
    for figure, text in (
        (recheck.passes_called_wrong, "the judge calls {} of the grader's {:,} passes wrong"),
        (recheck.failures_called_right, "the judge calls {} of the grader's {:,} failures right"),
        (recheck.disagreements, "they disagree on {} of {:,} answers"),
    ):
        if figure is not None:
            share = f"{100 * figure.value:.1f}% ({100 * figure.lo:.1f} to {100 * figure.hi:.1f})"
            yield f"  {text.format(share, figure.n)}"


def _name(evaluated: EvaluationFigures) -> str:
    return escape(Path(evaluated.evaluation.benchmark).name)


def _figure(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"{100 * estimate.value:.1f}\n{100 * estimate.lo:.1f}–{100 * estimate.hi:.1f}"
