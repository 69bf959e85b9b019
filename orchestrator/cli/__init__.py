"""The `coevo` command. A command's module is imported only when it is called, since importing all takes seconds."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group
from typing_extensions import override

from core.imports import collection_paused

# Heading in the help -> command -> "MODULE:NAME" in this package, which is a function or a `typer.Typer`.
_COMMANDS = {
    "Services": {
        "up": "services:up",
        "down": "services:down",
        "status": "services:status",
        "migrate": "services:migrate",
        "du": "disk:du",
        "gc": "disk:gc",
        "api": "api:api",
        "keys": "api:keys",
    },
    "Runs": {
        "check": "check:check",
        "run": "running:run",
        "resume": "running:resume",
        "runs": "runs:runs",
        "logs": "logs:logs",
        "verify": "verify:verify",
        "experiment": "experiment:experiment",
    },
    "Results": {
        "evaluate": "evaluate:evaluate",
        "recheck": "recheck:recheck",
        "compare": "compare:compare_command",
        "report": "report:report",
        "series": "series:series",
        "questions": "api:questions",
        "rollouts": "rollouts:rollouts",
        "export": "export:export",
        "matrix": "matrix:matrix",
        "audit": "audit:audit",
        "cost": "cost:cost",
        "alerts": "alerts:alerts",
        "replay": "methods:replay",
    },
    "Methods and tools": {
        "init": "init:init",
        "rewards": "methods:rewards",
        "grade": "grade:grade",
        "easyr1": "easyr1:easyr1",
        "micro": "micro:micro",
    },
}


class _LazyGroup(TyperGroup):
    """The group of all commands. It knows them by name and imports one only when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for heading, names in _COMMANDS.items():
            for name in names:
                self.add_command(TyperCommand(name, rich_help_panel=heading))

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, arguments = super().resolve_command(ctx, args)
        return name, _import_command(_target(name)) if name else command, arguments

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        for name, command in self.commands.items():
            command.help = escape(_help_text(_target(name)))
        super().format_help(ctx, formatter)


app = typer.Typer(cls=_LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"coevo {version('coevo')}")
        raise typer.Exit


def _open_closed_streams() -> None:
    """Give standard input, output and errors that the caller has closed (`>&-`) to /dev/null: what is opened next, such
    as the database, would take their numbers, and what is printed would be written to it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


_open_closed_streams()


@app.callback()
def _coevo(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train two language models together, as in the R-Zero paper: a Challenger writes questions, a Solver answers them
    and learns from its own majority votes.

    To begin, `coevo up` starts the services, `coevo run demo` runs the demo, `coevo report demo` writes its report.
    """


def _target(name: str) -> str:
    """`MODULE:NAME` of a command."""
    return next(names[name] for names in _COMMANDS.values() if name in names)


def _import_command(target: str) -> Any:
    module, _, attribute = target.partition(":")
    with collection_paused():
        command = getattr(import_module(f"{__name__}.{module}"), attribute)
    if isinstance(command, typer.Typer):
        return _literal(get_group(command))
    single = typer.Typer(add_completion=False)
    single.command()(command)
    return _literal(get_command(single))


def _unbroken(text: str) -> str:
    """The paragraphs, each in one line: Rich would keep the line breaks of the source in all but the first."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _literal(command: Any) -> Any:
    """A command whose help shows brackets such as `[audit.judge]`, which Rich would take for a style and leave out."""
    command.help = command.help and escape(_unbroken(command.help))
    for option in command.params:
        if getattr(option, "help", None):
            option.help = escape(option.help)
    for below in getattr(command, "commands", {}).values():
        _literal(below)
    return command


def _help_text(target: str) -> str:
    """The first paragraph of a command's docstring, or a group's `help`, read from the source without importing it."""
    module, _, attribute = target.partition(":")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if name == attribute:
                return inspect.cleandoc(ast.get_docstring(node) or "").partition("\n\n")[0]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(keywords=keywords)) if name == attribute:
                return next(str(ast.literal_eval(keyword.value)) for keyword in keywords if keyword.arg == "help")
    raise LookupError(target)
