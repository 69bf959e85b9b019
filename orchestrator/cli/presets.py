"""`coevo presets`: what can be run, what it needs, and what it costs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from orchestrator.check.needs import Need
from orchestrator.check.presets import Described, describe, describe_all
from orchestrator.cli.terminal import AsJson, clear_errors, suggest_presets, wide


def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show only this preset, in full: a name, or the path of a TOML file.",
            show_default=False,
            autocompletion=suggest_presets,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the presets: what each is, what it needs, and what it costs by the arithmetic of `coevo plan`.

    --json prints one preset per line.
    """
    with clear_errors():
        described = describe_all() if name is None else [describe(name)]
        if as_json:
            for preset in described:
                print(json.dumps(_row(preset)))
        elif name is None:
            wide().print(_table(described))
            print("`coevo presets NAME` says what to put where; `coevo check NAME` whether it can start here.")
        else:
            print("\n".join(_lines(described[0])))


def _row(preset: Described) -> dict[str, Any]:
    hours = None if preset.hours is None else {"typical": preset.hours[0], "maximum": preset.hours[1]}
    return {**asdict(preset), "hours": hours}


def _table(presets: list[Described]) -> Table:
    table = Table("preset", "what it is", "kind", "GPUs", "hours", "missing here", box=SIMPLE_HEAD)
    for preset in presets:
        missing = ", ".join(dict.fromkeys(need.kind for need in preset.missing))
        table.add_row(preset.name, preset.about, preset.kind, str(preset.gpus or "none"), _hours(preset), missing)
    return table


def _hours(preset: Described) -> str:
    return (
        ""
        if preset.hours is None
        else " to ".join(f"{hours:.1f}" if hours < 10 else f"{hours:.0f}" for hours in preset.hours)
    )


def _lines(preset: Described) -> list[str]:
    cost = f"{preset.gpus} GPUs for {_hours(preset)} hours, by assumed speeds (`coevo plan {preset.name}`)"
    if preset.hours is None:
        cost = "no GPU; its comment above says how long it takes"
    rows = [
        ("kind", f"{preset.kind}, with {preset.method} as the Solver's method"),
        ("papers", ", ".join(f"arXiv {number}" for number in preset.arxiv) or "none"),
        ("base model", preset.base_model),
        ("iterations", str(preset.iterations)),
        ("costs", cost),
    ]
    lines = [preset.name, *(f"  {line}" for line in preset.comment.splitlines()), ""]
    lines += [f"{title:<11} {text}" for title, text in rows]
    return [*lines, "needs       nothing that is not here" if not preset.needs else "needs", *map(_need, preset.needs)]


def _need(need: Need) -> str:
    state = {True: "here", False: "missing", None: "not known"}[need.here]
    remedy = f": {need.remedy}" if need.remedy else ""
    return f"  {need.kind:<10} {need.what} ({need.setting}) - {state}{remedy}"
