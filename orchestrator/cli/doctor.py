"""`coevo doctor`: check whether this machine can run the services and a preset."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from core.settings.parsing import load_config
from orchestrator.check.machine.examine import Result, examine
from orchestrator.check.machine.result import Status, Subject
from orchestrator.check.start import preset_path
from orchestrator.cli.question import printable
from orchestrator.cli.terminal import SET, AsJson, Overrides, clear_errors, overrides_of, suggest_presets
from orchestrator.installation.home import home
from orchestrator.installation.ports import Ports

_COLOURS: dict[Status, str] = {"ok": "green", "warning": "yellow", "fault": "red", "-": "bright_black"}
_LONGEST = 1000  # characters of a line


def doctor(
    preset: Annotated[
        str | None,
        typer.Argument(
            help="Name of a preset in deploy/runs, or path of a TOML file, to check too.",
            show_default=False,
            autocompletion=suggest_presets,
        ),
    ] = None,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine can run the services and, if one is given, a preset.

    Nothing is changed, except that the preset's benchmarks are fetched if they are not on this machine.

    Each line is ok, a warning, or a fault with what to do about it; "-" marks a check that does not apply here. The
    exit code is 1 if there is a fault.
    """
    with clear_errors():
        config = None
        if preset is not None:
            config = load_config(preset_path(preset), overrides_of(override), SET)
        results = []
        coevo_home = home()
        for result in examine(Subject(coevo_home, preset, config, Ports().as_last_time(coevo_home))):
            results.append(result)
            if not as_json:
                _print(result)
        counts = Counter(result.status for result in results)
        if as_json:
            checks = [asdict(result) for result in results]
            print(json.dumps({"faults": counts["fault"], "warnings": counts["warning"], "checks": checks}, indent=1))
        else:
            print(f"faults: {counts['fault']}, warnings: {counts['warning']}")
        raise typer.Exit(1 if counts["fault"] else 0)


def _print(result: Result) -> None:
    console = Console(emoji=False, highlight=False, soft_wrap=True)
    console.print(f"[{_COLOURS[result.status]}]{result.status:<8}[/]{result.name:<18}{_line(result.detail)}")
    if result.remedy:
        console.print(f"{'':<26}-> {_line(result.remedy)}")


def _line(text: str) -> str:
    return printable(" ".join(text.split()), _LONGEST)
