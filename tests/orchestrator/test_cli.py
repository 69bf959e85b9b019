"""The command line lists all commands before it imports any of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from orchestrator.cli import _COMMANDS, app

NAMES = [name for names in _COMMANDS.values() for name in names]


def words(text: str) -> str:
    """The text without the terminal's line breaks and frames."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("name", NAMES)
def test_the_list_of_commands_describes_each_as_its_own_help_does(name: str) -> None:
    group = get_command(app)
    context = typer.Context(group)
    _, command, _ = group.resolve_command(context, [name])
    group.format_help(context, context.make_formatter())
    listed = group.get_command(context, name).help
    assert listed
    assert words(command.help).startswith(words(listed))


def test_the_help_names_every_command_and_imports_none() -> None:
    code = "import sys; from orchestrator.cli import app; app(standalone_mode=False); print('imported', *sys.modules)"
    result = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    shown, _, imported = result.stdout.partition("imported ")
    for name in NAMES:
        assert f"│ {name} " in shown
    ours = {module for module in imported.split() if module.partition(".")[0] in ("core", "storage", "orchestrator")}
    assert ours == {"orchestrator", "orchestrator.cli", "core", "core.imports"}


def test_an_unknown_command_is_refused_and_a_similar_one_is_suggested() -> None:
    result = CliRunner().invoke(app, ["reprot"])
    assert result.exit_code == 2
    assert "No such command 'reprot'. Did you mean 'report'" in words(result.output)
