"""`coevo micro build`: build the tiny base model again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.terminal import clear_errors

micro = typer.Typer(help="Build the tiny base model that the demo runs on.", no_args_is_help=True)


@micro.command("build")
def micro_build(
    folder: Annotated[Path, typer.Argument(help="Folder to write the model to.", show_default=False)],
) -> None:
    """Pre-train the tiny base model on its generated corpus (about twenty minutes on one core)."""
    with clear_errors():
        from trainers.micro.build import build  # imported here, because torch takes seconds to import

        build(folder, lambda line: print(line, file=sys.stderr, flush=True))
        print(folder)
