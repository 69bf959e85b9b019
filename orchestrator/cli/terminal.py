"""What the commands share: options, error output, files that they write, and the parsing of `--set`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from core.errors import CoevoError
from core.files import put
from core.settings.parsing import ConfigError
from core.unicode import from_json

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunName = Annotated[str, typer.Argument(help="Name of the run.", show_default=False)]


@contextmanager
def clear_errors() -> Iterator[None]:
    """Print an error that a user can cause as a short message and exit with code 1; any other keeps its traceback."""
    try:
        yield
    except CoevoError as error:
        typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


@contextmanager
def written(file: Path) -> Iterator[Path]:
    """The path of a temporary file, which becomes `file` at the end, so that this is complete or absent.

    Raises `ConfigError` if it cannot be written.
    """
    temporary = file.with_name(f"{file.name}.part")
    try:
        yield temporary
        put(temporary, file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from error


def setting(text: str) -> tuple[str, Any]:
    """Parse `NAME=VALUE`. The value is read as JSON if it is valid JSON, else as text. Raises `ConfigError`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set: expected NAME=VALUE, got {text!r}")
    try:
        return name, from_json(value)
    except json.JSONDecodeError:
        return name, value
