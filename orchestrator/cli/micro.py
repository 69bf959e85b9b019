"""`coevo micro build`: the tiny base model, made anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.terminal import clear_errors

micro = typer.Typer(help="The tiny base model that the demo runs on.", no_args_is_help=True)


@micro.command("build")
def micro_build(
    folder: Annotated[Path, typer.Argument(help="Where to write the model.", show_default=False)],
) -> None:
    """Pre-train the tiny base model from its generated corpus (about twenty minutes on one core)."""
    with clear_errors():
        from trainers.micro.build import build  # torch: seconds before the help

        build(folder, lambda line: print(line, file=sys.stderr, flush=True))
        print(folder)
