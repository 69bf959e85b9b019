"""`coevo rollouts`: the stored rollouts of a training, and what they were rewarded for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from orchestrator.cli.addresses import Key, Url, client
from orchestrator.cli.question import printable
from orchestrator.cli.terminal import AsJson, RunName, clear_errors

if TYPE_CHECKING:
    from core.types import TrainingRollout


def rollouts(
    run: RunName,
    iteration: Annotated[int, typer.Argument(help="Iteration of the run.", show_default=False)],
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
    limit: Annotated[int, typer.Option(help="Show at most this many rollouts; 0 shows all.", min=0)] = 20,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show what a training rewarded: its stored rollouts, from the REST API. --json prints one rollout per line."""
    from services.api.schemas import to_json

    with clear_errors():
        selected = client(url, key).training_rollouts(run, role, iteration, step=step, question=question, sort=sort)
        rows = list(islice(selected, limit or None))
        if as_json:
            for row in rows:
                print(to_json(row, ensure_ascii=True).decode())
        else:
            Console(emoji=False).print(_table(rows))


def _table(rollouts: Sequence[TrainingRollout]) -> Table:
    parts = list(dict.fromkeys(name for rollout in rollouts for name in rollout.parts))
    columns = ("step", "prompt", "rollout", "reward", *parts, "advantage", "tokens", "entropy", "end", "agrees")
    table = Table(*columns, "answer", "question", box=SIMPLE_HEAD)
    for row in rollouts:
        agrees = "" if row.agrees is None else "yes" if row.agrees else "no"
        figures = (row.reward, *(row.parts.get(name) for name in parts), row.advantage, row.tokens, row.mean_entropy)
        table.add_row(
            *(str(number) for number in (row.step, row.prompt, row.rollout)),
            *("" if figure is None else f"{figure:.4g}" for figure in figures),
            row.finish_reason,
            agrees,
            printable(row.answer or ""),
            printable(row.question or ""),
        )
    return table
