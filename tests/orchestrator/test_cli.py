"""The command line lists all commands before it imports any of them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from orchestrator.cli import _COMMANDS, _prepared, app
from orchestrator.installation.home import Home
from storage.queries.runs import LIMITS
from storage.session import open_store
from tests.synthetic_run import create

NAMES = [name for names in _COMMANDS.values() for name in names]
PATHS = [
    path
    for names in _COMMANDS.values()
    for name, target in names.items()
    for path in ([name] if isinstance(target, str) else [name, *(f"{name} {below}" for below in target.names)])
]


def words(text: str) -> str:
    """The text without the terminal's line breaks and frames."""
    return " ".join(text.replace("│", " ").split())


def test_there_are_at_most_16_commands_at_the_top() -> None:
    assert len(NAMES) <= 16


@pytest.mark.parametrize("path", PATHS)
def test_the_list_of_commands_describes_each_as_its_own_help_does(path: str) -> None:
    group: Any = get_command(app)
    context = typer.Context(group)
    *groups, name = path.split()
    for above in groups:
        _, group, _ = group.resolve_command(context, [above])
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
    assert ours == {"orchestrator", "orchestrator.cli", "core", "core.processes", "core.processes.imports"}


def test_an_unknown_command_is_refused_and_a_similar_one_is_suggested() -> None:
    result = CliRunner().invoke(app, ["reprot"])
    assert result.exit_code == 2
    assert "No such command 'reprot'. Did you mean 'report'" in words(result.output)


def test_the_version_is_the_package_s() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"coevo {version('coevo')}\n"


def test_brackets_in_a_help_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Rich takes `[audit.judge]` for a style and leaves it out."""
    tool = typer.Typer(add_completion=False)

    @tool.command()
    def judge(size: int = typer.Option(1, help="As in [audit]; see [[x]] too.")) -> None:
        """Fill in [audit.judge]."""

    def shown(command: Any) -> str:
        command.main(["--help"], standalone_mode=False)
        return words(capsys.readouterr().out)

    assert "[audit.judge]" not in shown(get_command(tool))
    printed = shown(_prepared(get_command(tool)))
    assert "Fill in [audit.judge]." in printed
    assert "As in [audit]; see [[x]] too." in printed


def test_a_help_is_not_broken_where_its_source_is(capsys: pytest.CaptureFixture[str]) -> None:
    tool = typer.Typer(add_completion=False)

    @tool.command()
    def judge() -> None:
        """A line.

        Begun here and
        ended here.
        """

    _prepared(get_command(tool)).main(["--help"], standalone_mode=False)
    assert "Begun here and ended here." in capsys.readouterr().out


def completed(line: str, home: Path) -> list[str]:
    """What a bash suggests for the last word of a command line."""
    environment = {**os.environ, "_COEVO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COEVO_HOME": str(home)}
    environment["COMP_CWORD"] = str(len(line.split(" ")) - 1)
    code = "from orchestrator.cli import app; app(prog_name='coevo')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_shell_completes_commands_presets_runs_and_options(tmp_path: Path) -> None:
    with open_store(Home(tmp_path).database, create=True).write() as session:
        create(session, "mine")
    assert completed("coevo ru", tmp_path) == ["run", "runs"]
    assert completed("coevo check micro_", tmp_path) == ["micro_test_time"]
    assert completed("coevo show cost ", tmp_path) == ["mine"]
    assert completed("coevo check demo --js", tmp_path) == ["--json"]


def test_the_help_of_resume_names_every_setting_that_a_run_may_change() -> None:
    shown = words(CliRunner().invoke(app, ["resume", "--help"]).output)
    assert f"Change a setting that a run may change: {', '.join(LIMITS)}, such as budget.hours=24." in shown
