"""The `coevo` command. A command's module is imported only when it is called, since importing all takes seconds."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group
from typing_extensions import override

from core.processes.imports import collection_paused


@dataclass(frozen=True, slots=True)
class _Group:
    """Commands below a command: what they do together, and command -> "MODULE:NAME"."""

    help: str
    names: Mapping[str, str]


# Heading in the help -> command -> "MODULE:NAME" in this package, which is a function or a `typer.Typer`; or a group.
_COMMANDS: dict[str, dict[str, str | _Group]] = {
    "Start here": {
        "check": "check:check",
        "init": "init:init",
        "up": "services:up",
        "run": "running:run",
        "status": "services:status",
        "down": "services:down",
    },
    "Runs": {
        "resume": "running:resume",
        "runs": "runs:runs",
    },
    "Results": {
        "show": _Group(
            "Show what a run asked, answered and learned: its questions, rollouts, figures, costs and alerts.",
            {
                "questions": "questions:questions",
                "rollouts": "rollouts:rollouts",
                "series": "series:series",
                "labels": "audit:labels",
                "cost": "cost:cost",
                "alerts": "alerts:alerts",
                "matrix": "matrix:matrix",
                "replay": "methods:replay",
            },
        ),
        "report": "report:report",
        "compare": "compare:compare_command",
        "evaluate": "evaluate:evaluate",
        "audit": _Group(
            "Have people or a judge model check labels: plan how many audits, draw a sample, ask the judge.",
            {"plan": "audit:plan", "draw": "audit:draw", "judge": "judge:judge", "recheck": "judge:recheck"},
        ),
        "export": "export:export",
    },
    "Methods and store": {
        "methods": _Group(
            "List the Solver's training methods, and try them: on rollouts, on two answers, as EasyR1's files.",
            {
                "list": "methods:list_methods",
                "score": "methods:score",
                "grade": "grade:grade",
                "easyr1": "easyr1:easyr1",
            },
        ),
        "store": _Group(
            "Look after what is stored: make its tables, serve it over REST, verify it, free the disk.",
            {
                "migrate": "services:migrate",
                "serve": "api:api",
                "keys": "api:keys",
                "verify": "verify:verify",
                "du": "disk:du",
                "gc": "disk:gc",
            },
        ),
    },
}


class _LazyGroup(TyperGroup):
    """Commands known by name. A command is imported when it is called."""

    def __init__(self, headings: Mapping[str, Mapping[str, str | _Group]] = _COMMANDS, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.targets = dict[str, str]()
        for heading, names in headings.items():
            for name, target in names.items():
                if isinstance(target, _Group):
                    below = {"Commands": target.names}
                    self.add_command(
                        _LazyGroup(below, name=name, help=target.help, rich_help_panel=heading, no_args_is_help=True)
                    )
                else:
                    self.targets[name] = target
                    self.add_command(TyperCommand(name, rich_help_panel=heading))

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, arguments = super().resolve_command(ctx, args)
        if name not in self.targets:
            return name, command, arguments
        module, _, attribute = self.targets[name].partition(":")
        with collection_paused():
            group_or_function = getattr(import_module(f"{__name__}.{module}"), attribute)
        if isinstance(group_or_function, typer.Typer):
            return name, _prepared(get_group(group_or_function)), arguments
        single = typer.Typer(add_completion=False)
        single.command()(group_or_function)
        return name, _prepared(get_command(single)), arguments

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        for name, target in self.targets.items():
            self.commands[name].help = escape(_help_text(target))
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

    To begin: `coevo check`, `coevo up`, `coevo run demo`, `coevo report demo`. `coevo COMMAND --help` says more.
    """


def _unbroken(text: str) -> str:
    """The paragraphs, each in one line: Rich would keep the line breaks of the source in all but the first."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _prepared(command: Any) -> Any:
    """A command, or a group, that prints a user's error as a short message. Its help shows brackets such as
    `[audit.judge]`, which Rich would take for a style and leave out."""
    from orchestrator.cli.terminal import clear_errors  # a help imports nothing

    command.callback = command.callback and clear_errors()(command.callback)
    command.help = command.help and escape(_unbroken(command.help))
    for option in command.params:
        if getattr(option, "help", None):
            option.help = escape(option.help)
    for below in getattr(command, "commands", {}).values():
        _prepared(below)
    return command


def _help_text(target: str) -> str:
    """The first paragraph of a command's docstring, or a group's `help`, read from the source without importing it."""
    module, _, attribute = target.partition(":")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if name == attribute:
                return _unbroken(ast.get_docstring(node) or "").partition("\n\n")[0]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(keywords=keywords)) if name == attribute:
                return next(str(ast.literal_eval(keyword.value)) for keyword in keywords if keyword.arg == "help")
    raise LookupError(target)
