"""`coevo` in the test's own process: as a process of its own it would import for seconds."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from orchestrator.cli import app


def coevo(*arguments: object, status: int = 0, **environment: str | None) -> Result:
    """Run the command; it must end with this status, and not by an error that nobody has caught."""
    result = CliRunner().invoke(app, [*map(str, arguments)], env=environment)
    assert result.exit_code == status, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def json_of(*arguments: object, status: int = 0) -> Any:
    return json.loads(coevo(*arguments, "--json", status=status).stdout)


def refusal(*arguments: object, status: int = 1) -> str:
    """Why the command is refused, without line breaks."""
    return words(coevo(*arguments, status=status).stderr)


def words(text: str) -> str:
    """The text without the terminal's line breaks and frames."""
    return " ".join(text.replace("│", " ").split())


def sets(*settings: str) -> list[str]:
    """The options that give these settings, NAME=VALUE each."""
    return [part for setting in settings for part in ("--set", setting)]
