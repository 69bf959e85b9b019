"""`coevo init`: begin with one's own model, prompts and benchmark."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.check.init import PRESET, README, make
from orchestrator.cli.terminal import suggest_presets


def init(
    folder: Annotated[Path, typer.Argument(help="Folder to make. It must be new or empty.", show_default=False)],
    preset: Annotated[
        str,
        typer.Option(
            help="Preset to start from: a name in deploy/runs, or the path of a TOML file.",
            autocompletion=suggest_presets,
        ),
    ] = "micro",
) -> None:
    """Make a folder with a preset, prompts and a benchmark to replace by your own.

    As they are, they run with the preset's model. The lines of the preset to edit are marked.
    """
    for file in make(folder, preset):
        print(file)
    command = f"coevo check {shlex.quote(str(folder / PRESET))}"
    print(f"{folder / README} says what to edit; `{command}` whether it can run.")
