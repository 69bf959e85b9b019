"""`coevo show rollouts`: the stored rollouts of a training, and what they were rewarded for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, Literal

import typer
from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.types import TrainingRollout
from orchestrator.cli.addresses import Key, Url, client
from orchestrator.cli.terminal import AsJson, Iteration, Limit, RunName, first_rows, indented, printable, wide

_PADDING, _TEXT_WIDTH = 2, 40  # characters: around a cell, and for the answer and the question together


def rollouts(
    run: RunName,
    iteration: Iteration,
    role: Annotated[Literal["challenger", "solver"], typer.Option(help="Whose training.")] = "solver",
    step: Annotated[int | None, typer.Option(help="Only rollouts of this step.", min=0)] = None,
    question: Annotated[str | None, typer.Option(help="Only rollouts of the question with this id.")] = None,
    sort: Annotated[
        str,
        typer.Option(
            help="Sort by step, reward, advantage, tokens or entropy; with a leading - (except step) in descending "
            "order."
        ),
    ] = "-reward",
    text: Annotated[
        bool, typer.Option("--text", help="Print what the model wrote too, where the run keeps it (rollout_text).")
    ] = False,
    limit: Limit = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show what a training rewarded: its stored rollouts, from the REST API. --json prints one rollout per line."""
    api, path = client(url, key), f"/runs/{run}/training/{role}/{iteration}/rollouts"

    def with_text(row: dict[str, Any]) -> dict[str, Any]:
        whole: dict[str, Any] = api.get(f"{path}/{row['step']}/{row['prompt']}/{row['rollout']}")
        return whole

    selected = api.items(path, step=step, question=question, sort=sort)
    if as_json:
        for row in islice(selected, limit or None):
            print(json.dumps(with_text(row) if text else row))
        return
    rows, more = first_rows(selected, limit)
    _print_table([*map(TypeAdapter(TrainingRollout).validate_python, rows)], more)
    for row in map(with_text, rows if text else ()):
        wide().print("[bold]step {step}, prompt {prompt}, rollout {rollout}[/]".format(**row))
        wide().print(indented("the run does not keep this text" if row["text"] is None else row["text"]))


def _print_table(rollouts: Sequence[TrainingRollout], caption: str | None) -> None:
    """A line for each rollout. On a narrow terminal the texts give way, and never a figure."""
    parts = list(dict.fromkeys(name for rollout in rollouts for name in rollout.parts))
    names = ("step", "prompt", "rollout", "reward", *parts, "advantage", "tokens", "entropy", "end", "agrees")
    rows = []
    for row in rollouts:
        figures = (row.reward, *map(row.parts.get, parts), row.advantage, row.tokens, row.mean_entropy)
        cells = [*map(str, (row.step, row.prompt, row.rollout))]
        cells += ["" if figure is None else f"{figure:.4g}" for figure in figures]
        rows.append([*cells, row.finish_reason, "" if row.agrees is None else "yes" if row.agrees else "no"])
    table, console = Table(box=SIMPLE_HEAD, caption=caption), wide()
    for name, *column in zip(names, *rows, strict=True):
        table.add_column(name, min_width=max(map(len, (name, *column))), no_wrap=True)
    table.add_column("answer", overflow="fold")
    table.add_column("question", overflow="fold")
    for rollout, cells in zip(rollouts, rows, strict=True):
        table.add_row(*cells, printable(rollout.answer or ""), printable(rollout.question or ""))
    width = sum((shown.min_width or 0) + _PADDING for shown in table.columns)
    console.width = max(console.width, width + _TEXT_WIDTH)
    console.print(table)
