"""`coevo cost`: what a run has cost."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.statistics.estimates import Estimate
from orchestrator.cli.terminal import AsJson, RunName, clear_errors
from orchestrator.installation.home import home
from orchestrator.runs import stored_config
from services.costs import Amounts, RunCosts, costs_of
from storage.session import open_store


def cost(run: RunName, as_json: AsJson = False) -> None:
    """Show what a run has cost so far: time, devices, requests, tokens and money of each stage (docs/costs.md)."""
    with clear_errors():
        store = open_store(home().database)
        config = stored_config(store, run)
        with store.read() as session:
            costs = costs_of(session, run, config.rates)
        if as_json:
            print(TypeAdapter(RunCosts).dump_json(costs, indent=1).decode())
            return
        console = Console()
        console.print(_table(costs))
        for line in _remarks(costs):
            console.print(line, markup=False, highlight=False)


def _table(costs: RunCosts) -> Table:
    names = ["t", "stage", "for", "time", "CPU time", "GPU time", "requests", "tokens in", "tokens out"]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_footer=True)
    for name, footer in zip(names, ["", "all", "", *_cells(costs.total)], strict=True):
        table.add_column(name, footer, justify="left" if name in ("stage", "for") else "right")
    if costs.currency is not None:
        table.add_column(costs.currency, _money(costs.total), justify="right")
    for row in costs.rows:
        cells = [str(row.iteration), row.stage, "" if row.purpose == "stage" else row.purpose, *_cells(row.amounts)]
        table.add_row(*cells, *([_money(row.amounts)] if costs.currency is not None else []))
    return table


def _cells(amounts: Amounts) -> list[str]:
    times = [_time(seconds) for seconds in (amounts.seconds, amounts.cpu_seconds, amounts.gpu_seconds)]
    counts = (amounts.requests, amounts.prompt_tokens, amounts.reply_tokens)
    return [*times, *(f"{count:,}" if count else "" for count in counts)]


def _time(seconds: float) -> str:
    if seconds == 0:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _money(amounts: Amounts) -> str:
    return f"{amounts.money:,.2f}" if amounts.money else ""


def _remarks(costs: RunCosts) -> Iterator[str]:
    if costs.elapsed_seconds is not None:
        elapsed, total = _time(costs.elapsed_seconds), _time(costs.total.seconds)
        yield f"{elapsed} from the run's creation to the end of its last stage, {total} of it in stages"
    if costs.kept:
        amounts = costs.making
        each = (amounts.cpu_seconds + amounts.gpu_seconds) / costs.kept
        tokens = (amounts.prompt_tokens + amounts.reply_tokens) / costs.kept
        price = f", {amounts.money / costs.kept:,.4f} {costs.currency}" if costs.currency else ""
        yield (
            f"each of {costs.kept:,} kept questions took {each:.2f} s of devices, {tokens:,.0f} tokens{price}, from "
            "the Challenger's training to its label"
        )
    for correct in costs.correct:
        price = f", {_figure(correct.money, 4)} {costs.currency}" if costs.currency else ""
        yield (
            f"each of {_figure(correct.questions, 0)} with a right label (by {correct.oracle}) took "
            f"{_figure(correct.seconds, 2)} s of devices{price}"
        )


def _figure(figure: Estimate, digits: int) -> str:
    return f"{figure.value:,.{digits}f} (95%: {figure.lo:,.{digits}f} to {figure.hi:,.{digits}f})"
