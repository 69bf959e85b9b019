"""`coevo show cost`: what a run has cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.statistics.estimates import Estimate
from core.types import Purpose, Stage
from orchestrator.cli.terminal import AsJson, RunName, opened, wide
from orchestrator.runs import stored_config
from services.views.costs import NOTHING, Amounts, RunCosts, costs_of


def cost(run: RunName, as_json: AsJson = False) -> None:
    """Show what a run has cost so far: time, devices, requests, tokens and money of each stage (docs/api.md)."""
    _, store = opened()
    config = stored_config(store, run)
    with store.read() as session:
        costs = costs_of(session, run, config.rates)
    if as_json:
        print(TypeAdapter(RunCosts).dump_json(costs, indent=1).decode())
        return
    console = wide()
    console.print(_table(costs))
    print_line = partial(console.print, markup=False)
    if costs.elapsed_seconds is not None:
        elapsed, total = _time(costs.elapsed_seconds), _time(costs.total.seconds)
        print_line(f"{elapsed} from the run's creation to the end of its last stage, {total} of it in stages")
    if costs.kept:
        amounts = costs.making
        seconds = (amounts.cpu_seconds + amounts.gpu_seconds) / costs.kept
        tokens = (amounts.prompt_tokens + amounts.reply_tokens) / costs.kept
        price = f", {amounts.money / costs.kept:,.4f} {costs.currency}" if costs.currency else ""
        print_line(
            f"each of {costs.kept:,} kept questions took {seconds:.2f} s of devices, {tokens:,.0f} tokens{price}, from "
            "the Challenger's training to its label"
        )
    for correct in costs.correct:
        price = f", {_figure(correct.money, 4)} {costs.currency}" if costs.currency else ""
        print_line(
            f"each of {_figure(correct.questions, 0)} with a right label (by {correct.oracle}) took "
            f"{_figure(correct.seconds, 2)} s of devices{price}"
        )


def _table(costs: RunCosts) -> Table:
    """One row for each stage and purpose, summed over the iterations, without rows and columns that are empty."""
    columns: dict[str, Callable[[Amounts], str]] = {
        "time": lambda amounts: _time(amounts.seconds),
        "CPU time": lambda amounts: _time(amounts.cpu_seconds),
        "GPU time": lambda amounts: _time(amounts.gpu_seconds),
        "tokens in": lambda amounts: f"{amounts.prompt_tokens:,}" if amounts.prompt_tokens else "",
        "tokens out": lambda amounts: f"{amounts.reply_tokens:,}" if amounts.reply_tokens else "",
        costs.currency or "": lambda amounts: (
            "" if amounts.money == 0 else f"{amounts.money:,.2f}" if amounts.money >= 0.01 else "<0.01"
        ),
    }
    shown = {name: cell for name, cell in columns.items() if cell(costs.total)}
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_footer=True)
    table.add_column("stage", "all", no_wrap=True)
    table.add_column("for", no_wrap=True)
    for name, cell in shown.items():
        table.add_column(name, cell(costs.total), justify="right", no_wrap=True)
    sums: dict[tuple[Stage, Purpose], Amounts] = {}
    for row in costs.rows:
        key = (row.stage, row.purpose)
        sums[key] = sums.get(key, NOTHING) + row.amounts
    for (stage, purpose), amounts in sums.items():
        if any(cells := [cell(amounts) for cell in shown.values()]):
            table.add_row(stage, "" if purpose == "stage" else purpose, *cells)
    return table


def _time(seconds: float) -> str:
    if seconds == 0:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _figure(figure: Estimate, digits: int) -> str:
    return f"{figure.value:,.{digits}f} (95%: {figure.lo:,.{digits}f} to {figure.hi:,.{digits}f})"
