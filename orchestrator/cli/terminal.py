"""What the commands share: options, output, errors, files that they write, and the parsing of `--set`."""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from core import logs
from core.errors import CoevoError
from core.files import replacing
from core.logs import Format
from core.settings.parsing import ConfigError
from core.settings.trees import by_dotted_names
from core.texts.redaction import without_secrets
from core.texts.unicode import from_json, without_commands
from orchestrator.installation.home import PRESETS, Home, home

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from storage.session import Store

Row = TypeVar("Row")

_PIPE_COLUMNS, _TABLE_ROWS = 1_000, 20
_MAX_LINES, _MAX_LINE_CHARS = 200, 2_000  # of a model's text
_at_end = ContextVar[ExitStack]("_at_end")  # what is closed when the command ends
_at_end.set(ExitStack())  # for the completion of a command line
SET = "--set"  # what errors call an override
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Limit = Annotated[
    int | None,
    typer.Option(
        help=f"Show at most this many; 0 shows all. By default, text shows {_TABLE_ROWS} and --json all.",
        min=0,
        show_default=False,
    ),
]


def suggest_presets(incomplete: str) -> list[str]:
    """The presets that a shell suggests."""
    return sorted(file.stem for file in PRESETS.glob(f"{glob.escape(incomplete)}*.toml"))


LocalRunName = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="Name of the run; by default the preset's name, or that of the folder that `coevo init` made.",
        show_default=False,
    ),
]


def _suggest_forks(incomplete: str) -> list[str]:
    return [f"{name}:" for name in suggest_runs(incomplete)]


FromRun = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN:T",
        help="Begin after iteration T of another run, with its settings, in place of a preset.",
        show_default=False,
        autocompletion=_suggest_forks,
    ),
]


def refuse_neither(preset: str | None, from_run: str | None) -> None:
    """Raise `ConfigError` unless a preset or another run is given. If both are, what starts the run refuses it."""
    if preset is None and from_run is None:
        raise ConfigError("PRESET: expected a preset, or --from RUN:T, got neither")


def refuse_zero(iterations: int | None) -> int | None:
    """For an option: 0 would read as "no iteration" and start a whole run. Prefect's form takes it for "not given"."""
    if iterations == 0:
        raise typer.BadParameter("expected 1 or more, got 0; without this option the number stays as it is")
    return iterations


Iterations = Annotated[
    int | None,
    typer.Option(
        help="Number of iterations; by default the preset's.",
        show_default=False,
        callback=refuse_zero,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override a setting: dataset.candidates=320. May be given more than once.", show_default=False
    ),
]


def _configure_logs(context: typer.Context, chosen: Format | None) -> Format | None:
    """Have this process log under the command's name. Processes that it starts find the format in the environment."""
    if not context.resilient_parsing:  # as it is while the shell completes a command
        if chosen is not None:
            os.environ[logs.VARIABLE] = chosen
        logs.configure(context.command.name or "coevo", home().secrets())
    return chosen


LogFormat = Annotated[
    Format | None,
    typer.Option(
        "--log-format",
        envvar=logs.VARIABLE,
        help="Log in lines of JSON or as text for people; by default text in a terminal, else JSON (docs/alerts.md).",
        show_default=False,
        callback=_configure_logs,
    ),
]


def suggest_runs(incomplete: str) -> list[str]:
    """The runs that a shell suggests; none if there is no store."""
    from storage import queries

    try:
        with reading() as session:
            return [row.name for row in queries.runs.list_runs(session) if row.name.startswith(incomplete)]
    except CoevoError:
        return []


RunName = Annotated[str, typer.Argument(help="Name of the run.", show_default=False, autocompletion=suggest_runs)]
Iteration = Annotated[int, typer.Argument(help="Iteration of the run.", show_default=False, min=0)]
Kept = Annotated[bool, typer.Option("--kept", help="Only the kept questions, which the Solver learned from.")]


def wide() -> Console:
    """A console for tables: as wide as the terminal or as `$COLUMNS`, in a pipe so wide that hardly a cell is broken.

    It has no emoji, since a text may be a model's.
    """
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, emoji=False, width=None if has_width else _PIPE_COLUMNS)


def printable(text: str, max_chars: int = 300) -> str:
    """A model's text on one line, without characters that a terminal or Rich would take for commands."""
    return escape(without_commands(text).replace("\n", " ")[:max_chars])


def indented(text: str) -> Padding:
    """A model's text with its line breaks, between empty lines. Its length is limited."""
    lines = [printable(line, _MAX_LINE_CHARS) for line in text.splitlines()[:_MAX_LINES]]
    return Padding("\n".join(lines), (1, 0, 1, 2), expand=False)


def first_rows(rows: Iterable[Row], limit: int | None) -> tuple[list[Row], str | None]:
    """(rows, line): as many rows as `--limit` says, and the line below the table if some are left out, else None."""
    most = _TABLE_ROWS if limit is None else limit
    shown = [*islice(rows, most + 1 if most else None)]
    if not most or len(shown) <= most:
        return shown, None
    return shown[:most], f"The first {most} are shown; --limit 0 shows all."


def print_progress(done: int, total: int, what: str) -> None:
    """Say on standard error how much is done; only `what` is being done if that is nothing yet. In a terminal, a line
    takes the place of the one before."""
    over, end = ("\x1b[K", "\n" if 0 < total <= done else "\r") if sys.stderr.isatty() else ("", "\n")
    print(f"{over}{done:,} of {total:,} {what}" if done else f"{over}{what}", end=end, file=sys.stderr, flush=True)


def print_json(value: Any, **how: Any) -> None:
    """Print a value as JSON. A dataclass becomes an object, a date its ISO text, and a path its name."""

    def plain(part: Any) -> Any:
        if is_dataclass(part) and not isinstance(part, type):
            return asdict(part)
        return part.isoformat() if isinstance(part, datetime) else str(part)

    print(json.dumps(value, default=plain, **{"indent": 1, **how}), flush=True)


def opened(*, create: bool = False) -> tuple[Home, Store]:
    """The home and its store. The store is closed when the command ends. Raises what `open_store` raises."""
    from storage.session import open_store  # SQLAlchemy takes half a second to import

    coevo_home = home()
    store = open_store(coevo_home.database, create=create)
    _at_end.get().callback(store.close)
    return coevo_home, store


@contextmanager
def reading() -> Iterator[Session]:
    """A transaction that reads the home's store."""
    _, store = opened()
    with store.read() as session:
        yield session


@contextmanager
def clear_errors() -> Iterator[None]:
    """Print an error that a user can cause as a short message and exit with code 1; any other keeps its traceback.

    Every command is called within it. Stores that the command has `opened` are closed at its end.
    """
    with ExitStack() as at_end:
        before = _at_end.set(at_end)
        try:
            yield
        except Exception as error:
            from storage.trouble import in_words  # imports SQLAlchemy

            shown = in_words(error)
            if not isinstance(shown, CoevoError):
                raise
            typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
            typer.echo(without_commands(without_secrets(str(shown))), err=True)  # it may quote what a service sent
            raise typer.Exit(1) from error
        finally:
            _at_end.reset(before)


@contextmanager
def writing(file: Path) -> Iterator[Path]:
    """The path of a temporary file, which becomes `file` at the end, so that this is complete or absent.

    Raises `ConfigError` if it cannot be written.
    """
    try:
        with replacing(file) as temporary:
            yield temporary
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from error


def overrides_of(texts: Iterable[str] | None) -> dict[str, Any]:
    """The settings of several `--set` options, by their dotted names. Raises `ConfigError`."""
    return {name: value for text in texts or [] for name, value in by_dotted_names(dict([setting(text)])).items()}


def setting(text: str) -> tuple[str, Any]:
    """Parse `NAME=VALUE`. The value is read as JSON if it is valid JSON, else as text. Raises `ConfigError`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{SET}: expected NAME=VALUE, got {text!r}")
    try:
        return name, from_json(value)
    except json.JSONDecodeError:
        return name, value
