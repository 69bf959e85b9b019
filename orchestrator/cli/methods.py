"""The Solver's methods: `coevo methods list` and `score`, and `coevo show replay`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.methods import METHODS, Method
from core.rollouts.scoring import outcome
from core.settings.parsing import parse_method
from orchestrator.cli.terminal import SET, AsJson, Kept, RunName, opened, overrides_of, print_json


def list_methods(as_json: AsJson = False) -> None:
    """List the Solver's training methods, with the settings of their papers."""
    defaults = {name: field.default for name, field in Method.model_fields.items()}
    table = Table("method", "what it is", "labels", "needs", "rollouts", "its own settings", box=SIMPLE_HEAD)
    rows = dict[str, dict[str, Any]]()
    for name, method in ((name, parse_method(name)) for name in METHODS):
        values = method.model_dump(mode="json", exclude={"type", "labels", "trained_share"})
        own = {setting: value for setting, value in values.items() if value != defaults.get(setting)}
        rows[name] = {
            "summary": summary_of(type(method)),
            "package": type(method).__module__.partition(".")[0],
            "labels": method.labels,
            "needs": sorted(method.needs),
            "rollouts": method.rollouts,
            "trained_share": method.trained_share,
            "settings": own,
        }
        trained = "" if method.trained_share == 1 else f", {method.trained_share:g} of them trained on"
        settings = "\n".join(f"{setting} {value}" for setting, value in own.items())
        needs = ", ".join(rows[name]["needs"]) or "-"
        table.add_row(name, rows[name]["summary"], method.labels, needs, f"{method.rollouts}{trained}", settings)
    if as_json:
        print_json(rows)
    else:
        Console(width=150).print(table)


def summary_of(kind: type[Method]) -> str:
    """The first line of a method's own docstring, and the method's package unless that is coevo."""
    text = inspect.cleandoc(vars(kind)["__doc__"] or "").partition("\n")[0] or "no description"
    package = kind.__module__.partition(".")[0]
    return text if package == Method.__module__.partition(".")[0] else f"{text} (from the package {package})"


def score(
    method: Annotated[str, typer.Argument(help=f"Name of the method: {', '.join(METHODS)}.", show_default=False)],
    groups: Annotated[
        Path, typer.Option(help="JSONL file with one group of rollouts a line (docs/methods.md).", show_default=False)
    ],
    override: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting of the method: alpha=0.25.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the pseudo-label, rewards and advantages of each group of rollouts in a file. Nothing is trained."""
    from orchestrator.analysis.group_files import GroupFileError, read_groups, with_signals

    chosen = parse_method(method, overrides_of(override), SET)
    lines = read_groups(groups)
    groups_of_lines = with_signals(lines, chosen, lambda text: typer.echo(f"note: {text}", err=True))
    texts = []
    for line, group in zip(lines, groups_of_lines, strict=True):
        try:
            result = outcome(group, chosen)
        except ValueError as error:
            raise GroupFileError(f"question {line.question_id}: {error}") from error
        scored, advantages = result.scored, result.advantages
        if as_json:
            row = {
                "question_id": line.question_id,
                "pseudo_label": scored.label,
                "rewards": [None if i in scored.undecided else r for i, r in enumerate(scored.rewards.tolist())],
                "advantages": advantages.tolist(),
                "learn": scored.learn,
            }
            texts.append(json.dumps(row))
            continue
        label = "no label" if scored.label is None else f"label {scored.label}"
        texts.append(f"{line.question_id}: {label}{'' if scored.learn else ', dropped from the loss'}")
        texts.append("  reward   advantage")
        for i, (reward, advantage) in enumerate(zip(scored.rewards, advantages, strict=True)):
            texts.append("undecided" if i in scored.undecided else f"{reward:8.4f}  {advantage:9.4f}")
    print("\n".join(texts))


def replay(
    name: RunName,
    iteration: Annotated[int, typer.Option(help="Iteration whose stored votes are scored.", show_default=False)],
    chosen: Annotated[str, typer.Option("--methods", help="Names of methods, separated by commas, or all.")] = "all",
    kept: Kept = False,
    as_json: AsJson = False,
) -> None:
    """Show which labels and rewards each method would give to an iteration's stored votes. Nothing is trained."""
    from orchestrator.analysis.replay import replay as replay_votes
    from orchestrator.analysis.replay import table

    coevo_home, store = opened()
    method_names = list(METHODS) if chosen == "all" else [part.strip() for part in chosen.split(",")]
    methods = [parse_method(method_name) for method_name in method_names]
    result = replay_votes(store, coevo_home.texts, name, iteration, methods, kept)
    if as_json:
        print_json(result, allow_nan=False)
    else:
        Console(width=150).print(table(result))
