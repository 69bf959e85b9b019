"""`coevo init`: begin with one's own model, prompts and benchmark."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.check.own_folder import PRESET, README, make
from orchestrator.cli.terminal import clear_errors, suggest_presets


def init(
    folder: Annotated[Path, typer.Argument(help="Folder to make. It must be new or empty.", show_default=False)],
    preset: Annotated[
        str,
        typer.Option(
            help="Preset to start from: a name in deploy/runs, or the path of a TOML file.",
            autocompletion=suggest_presets,
        ),
    ] = "micro",
    force: Annotated[
        bool, typer.Option("--force", help="Replace these files in a folder that is not empty. Others stay.")
    ] = False,
) -> None:
    """Make a folder with a preset, prompts and a benchmark to replace by your own.

    As they are, they run with the preset's model. The lines of the preset to edit are marked.
    """
    with clear_errors():
        for file in make(folder, preset, force=force):
            print(file)
        command = f"coevo check {shlex.quote(str(folder / PRESET))}"
        print(f"{folder / README} says what to edit; `{command}` whether it can run.")
