"""The commands about the Solver's methods: `coevo rewards` and `coevo replay`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.methods import METHODS, Method, Objective
from core.rollouts.scoring import Outcome, outcome
from core.settings.parsing import parse_method
from orchestrator.cli.terminal import AsJson, RunName, clear_errors, setting
from orchestrator.installation.home import home
from storage.session import open_store

rewards = typer.Typer(help="The Solver's methods: what they are, and what they make of a file of groups.")

Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the method: alpha=0.25.", show_default=False)
]


@rewards.callback(invoke_without_command=True)
def methods(
    context: typer.Context,
    listed: Annotated[bool, typer.Option("--list", help="List the methods and their papers' numbers.")] = False,
    as_json: AsJson = False,
) -> None:
    """The Solver's methods: what they are, and what they make of a file of groups."""
    if context.invoked_subcommand is not None:
        return
    if not listed:
        print(context.get_help())
        return
    by_name = {name: parse_method(name) for name in METHODS}
    if as_json:
        print(json.dumps({name: _described(method) for name, method in by_name.items()}, indent=1))
        return
    table = Table("method", "what it is", "labels", "needs", "rollouts", "its own numbers", box=SIMPLE_HEAD)
    for name, method in by_name.items():
        facts = _described(method)
        trained = "" if method.trained_share == 1 else f", {method.trained_share:g} of them trained on"
        numbers = "\n".join(f"{key} {value}" for key, value in facts["settings"].items())
        needs = ", ".join(sorted(facts["needs"])) or "-"
        table.add_row(name, facts["summary"], method.labels, needs, f"{method.rollouts}{trained}", numbers)
    Console(width=150).print(table)


def _described(method: Method) -> dict[str, Any]:
    """What a method is, and in what its numbers differ from those that all methods share."""
    shared = Objective()
    settings = {
        name: value
        for name, value in method.model_dump(mode="json", exclude={"type", "labels", "trained_share"}).items()
        if value != getattr(shared, name, None)
    }
    return {
        "summary": (inspect.getdoc(type(method)) or "").splitlines()[0],
        "labels": method.labels,
        "needs": sorted(method.needs),
        "rollouts": method.rollouts,
        "trained_share": method.trained_share,
        "settings": settings,
    }


@rewards.command()
def score(
    method: Annotated[str, typer.Argument(help=f"One of {', '.join(METHODS)}.", show_default=False)],
    groups: Annotated[Path, typer.Option(help="JSONL, one group a line: docs/papers.md.", show_default=False)],
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Score groups of rollouts: each group's pseudo-label, rewards and advantages. Nothing is trained."""
    with clear_errors():
        from orchestrator.analysis.group_files import GroupFileError, as_method_sees, read_groups

        chosen = parse_method(method, dict(setting(text) for text in override or []))
        lines = read_groups(groups)
        seen = as_method_sees(lines, chosen, lambda text: typer.echo(f"note: {text}", err=True))
        scored = []
        for i, (line, group) in enumerate(zip(lines, seen, strict=True)):
            try:
                scored.append(_scored(line.question_id, outcome(group, chosen, seed=i), as_json))
            except ValueError as error:
                raise GroupFileError(f"question {line.question_id}: {error}") from error
        print("\n".join(scored))


def _scored(question: str, outcome: Outcome, as_json: bool) -> str:
    scored, learn = outcome.scored, outcome.scored.learn
    if as_json:
        row = {
            "question_id": question,
            "pseudo_label": scored.label,
            "rewards": scored.rewards.tolist(),
            "advantages": outcome.advantages.tolist(),
            "learn": learn,
        }
        return json.dumps(row)
    label = "no label" if scored.label is None else f"label {scored.label}"
    numbers = ["  reward   advantage"]
    numbers += [
        f"{reward:8.4f}  {value:9.4f}" for reward, value in zip(scored.rewards, outcome.advantages, strict=True)
    ]
    return "\n".join([f"{question}: {label}{'' if learn else ', dropped from the loss'}", *numbers])


def replay(
    name: RunName,
    iteration: Annotated[int, typer.Option(help="Whose stored votes.", show_default=False)],
    chosen: Annotated[str, typer.Option("--methods", help="Names with commas between them, or all.")] = "all",
    kept: Annotated[bool, typer.Option("--kept", help="Only the questions that the Solver learned from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score the stored votes of an iteration under other papers' methods, without training: what each would label and
    reward."""
    with clear_errors():
        from orchestrator.analysis.replay import replay as replayed
        from orchestrator.analysis.replay import table, write_picture

        coevo_home = home()
        names = list(METHODS) if chosen == "all" else [part.strip() for part in chosen.split(",")]
        with_numbers = [parse_method(part) for part in names]
        result = replayed(open_store(coevo_home.database), coevo_home.texts, name, iteration, with_numbers, kept)
        if as_json:
            print(json.dumps(result, indent=1, allow_nan=False))
        else:
            Console(width=150).print(table(result))
            if result["advantage_correlation"]["methods"]:
                print(f"picture: {write_picture(result, coevo_home.reports)}")
