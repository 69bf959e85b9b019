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

from orchestrator.cli import _COMMANDS, _prepared, app
from orchestrator.installation.home import Home
from storage.queries.runs import LIMITS
from storage.session import open_store
from tests.commands import coevo, words
from tests.synthetic_run import create

NAMES = [name for names in _COMMANDS.values() for name in names]
PATHS = [
    path
    for names in _COMMANDS.values()
    for name, target in names.items()
    for path in ([name] if isinstance(target, str) else [name, *(f"{name} {below}" for below in target.names)])
]


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


def test_the_version_is_the_package_s() -> None:
    assert coevo("--version").stdout == f"coevo {version('coevo')}\n"


def test_brackets_in_a_help_are_shown_and_no_line_is_broken_where_its_source_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rich takes `[audit.judge]` for a style and leaves it out."""
    tool = typer.Typer(add_completion=False)

    @tool.command()
    def judge(size: int = typer.Option(1, help="As in [audit]; see [[x]] too.")) -> None:
        """Fill in [audit.judge].

        Begun here and
        ended here.
        """

    def shown(command: Any) -> str:
        command.main(["--help"], standalone_mode=False)
        return capsys.readouterr().out

    assert "[audit.judge]" not in shown(get_command(tool))
    printed = shown(_prepared(get_command(tool)))
    for text in ("Fill in [audit.judge].", "As in [audit]; see [[x]] too.", "Begun here and ended here."):
        assert text in printed


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
    shown = words(coevo("resume", "--help").output)
    assert f"Change a setting that a run may change: {', '.join(LIMITS)}, such as budget.hours=24." in shown
