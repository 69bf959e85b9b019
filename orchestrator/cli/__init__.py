"""The `coevo` command. A command's module is imported when the command is called: all of them take seconds."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

# Heading in the help -> command -> "MODULE:NAME" of what it is in this package: a function, or a `typer.Typer`.
_COMMANDS = {
    "Services": {
        "up": "services:up",
        "down": "services:down",
        "status": "services:status",
        "migrate": "services:migrate",
        "api": "api:api",
        "keys": "api:keys",
    },
    "Runs": {
        "run": "running:run",
        "resume": "running:resume",
        "runs": "runs:runs",
        "plan": "plan:plan",
    },
    "Results": {
        "report": "report:report",
        "series": "series:series",
        "questions": "api:questions",
        "matrix": "matrix:matrix",
        "audit": "audit:audit",
        "alerts": "alerts:alerts",
        "replay": "methods:replay",
    },
    "Methods and tools": {
        "rewards": "methods:rewards",
        "grade": "grade:grade",
        "easyr1": "easyr1:easyr1",
        "micro": "micro:micro",
        "bench": "bench:bench",
    },
}


class _LazyGroup(TyperGroup):
    """Commands that are known by name until one is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for heading, names in _COMMANDS.items():
            for name in names:
                self.add_command(TyperCommand(name, rich_help_panel=heading))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, _imported(_where(name)) if name else command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for name, command in self.commands.items():
            command.help = _help(_where(name))
        super().format_help(ctx, formatter)


app = typer.Typer(cls=_LazyGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _coevo() -> None:
    """Co-evolve a Challenger and a Solver: the R-Zero loop as a service."""


def _where(name: str) -> str:
    return next(names[name] for names in _COMMANDS.values() if name in names)


def _imported(where: str) -> Any:
    """The command itself."""
    module, _, attribute = where.partition(":")
    command = getattr(import_module(f"{__name__}.{module}"), attribute)
    if isinstance(command, typer.Typer):
        return get_group(command)
    alone = typer.Typer(add_completion=False)
    alone.command()(command)
    return get_command(alone)


def _help(where: str) -> str:
    """What a command is for, read from its module's source: its docstring's first paragraph, or a group's `help`."""
    module, _, attribute = where.partition(":")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if name == attribute:
                return inspect.cleandoc(ast.get_docstring(node) or "").partition("\n\n")[0]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(keywords=keywords)) if name == attribute:
                return next(str(ast.literal_eval(keyword.value)) for keyword in keywords if keyword.arg == "help")
    raise LookupError(where)
