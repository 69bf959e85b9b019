"""The oracle that is a program of one's own, in any language. Its format is in docs/extending.md.

The program is started once for all pseudo-labels of an iteration. Its standard input has one line of JSON for each,
with `question` and `label`; it prints one line of JSON for each, in the same order, with `verdict` and, if it knows the
answer, `truth`. The input is text of models, which reaches the program as data only, never as an argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast, get_args

from typing_extensions import override

from core.errors import CoevoError
from core.settings.audit import Program
from core.texts.unicode import from_json
from core.types import OracleLabel, OracleVerdict

ORACLE = "program"
_MAX_TRUTH = 2_000  # characters
_MOST_PER_LABEL = 32_768  # bytes of output; more than the longest `truth` in JSON's longest spelling
_SHOWN = 500  # characters of a program's output that an error shows


class ProgramError(CoevoError):
    """A program that cannot be run, fails, or does not print what is expected of it."""


# Programs that run what they read on their standard input, or that start such a program. Their names may end in a
# version, such as python3.11.
_INTERPRETERS = re.compile(
    r"(?:(?:ba|da|z|k|mk|pdk|lk|c|tc|fi|a|r|ya|o)?sh|static-sh|busybox|toybox|env|xargs|parallel|at|batch|nohup|sudo|su"
    r"|python|pypy|ipython|perl|raku|ruby|jruby|irb|node|nodejs|deno|bun|php|lua|luajit|tclsh|wish|expect|pwsh|osascript"
    r"|r|rscript|julia|octave|octave-cli|gp|maxima|sage|ghci|runghc|runhaskell|guile|sbcl|clisp|ecl|scheme|racket|elixir|iex|erl"
    r"|escript|ocaml|swipl|prolog|scala|groovy|groovysh|jshell|kotlin|clojure|awk|gawk|mawk|nawk|original-awk|sed|ed|ex"
    r"|vi|vim|nvim|emacs|m4|make|gmake|bc|dc|gdb|lldb|sqlite|psql|mysql|mariadb|gnuplot|ssh|cmake|tee|dd|sponge)[\d.]*(?:-static|\.exe)?",
    re.IGNORECASE,
)


def refuse_unrunnable(settings: Program) -> None:
    """Raise `ProgramError` if the program is no executable file, or is an interpreter: it would run a model's text."""
    file = Path(settings.file)
    _refuse_interpreter(file)
    if not file.is_file() or not os.access(file, os.X_OK):
        problem = (
            f"{file}, which is not executable; chmod +x {file}" if file.is_file() else f"{file}, which is not there"
        )
        raise ProgramError(f"expected an executable file, got {problem}")


def _refuse_interpreter(file: Path) -> None:
    if names := [name for name in (file.name, file.resolve().name) if _INTERPRETERS.fullmatch(name)]:
        raise ProgramError(
            f"expected a program that reads questions, got {file}: {names[-1]} would run the text of the models as a "
            "program; name a script of your own, which may begin with #!"
        )


def audit(rows: Sequence[tuple[str, str, str]], settings: Program) -> list[OracleLabel]:
    """The program's label of each (question id, question, pseudo-label). Raises `ProgramError`."""
    lines = "".join(json.dumps({"question": question, "label": label}) + "\n" for _, question, label in rows)
    output = asyncio.run(_output(settings, lines.encode(), _MOST_PER_LABEL * len(rows)))
    printed = output.splitlines()  # of bytes: a text may have other ends of lines in it
    if len(printed) != len(rows):
        raise ProgramError(
            f"audit.program: expected {len(rows)} lines from {settings.file}, one for each pseudo-label, "
            f"got {len(printed)}"
        )
    known, labels = get_args(OracleVerdict), []
    for number, ((key, _, _), printed_line) in enumerate(zip(rows, printed, strict=True), 1):
        position, line = f"audit.program: {settings.file}, line {number}", printed_line.decode(errors="replace")
        try:
            row = from_json(line)
        except json.JSONDecodeError as error:
            raise ProgramError(f"{position}: expected JSON, got {line[:_SHOWN]!r}") from error
        if not isinstance(row, dict) or row.get("verdict") not in known:
            raise ProgramError(
                f"{position}: expected an object whose verdict is one of {', '.join(known)}, got {line[:_SHOWN]!r}"
            )
        truth = row.get("truth")
        if isinstance(truth, bool) or not isinstance(truth, str | int | float | None) or len(str(truth)) > _MAX_TRUTH:
            raise ProgramError(
                f"{position}: truth: expected a text of at most {_MAX_TRUTH} characters, a number or null, "
                f"got {str(truth)[:_SHOWN]!r}"
            )
        labels.append(OracleLabel(key, ORACLE, row["verdict"], None if truth is None else str(truth)))
    return labels


async def _output(settings: Program, given: bytes, most: int) -> bytes:
    """What the program prints until it ends, at most `most` bytes. If it is late or prints more, it is killed with all
    that it started."""
    file = settings.file
    _refuse_interpreter(Path(file))
    loop = asyncio.get_running_loop()
    try:
        transport, pipes = await loop.subprocess_exec(lambda: _Pipes(most), file, start_new_session=True)
    except OSError as error:
        raise ProgramError(f"audit.program: {file} cannot be run: {error.strerror}") from error
    stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
    stdin.write(given)  # what the program does not read is dropped
    stdin.close()
    try:
        async with asyncio.timeout(settings.timeout):
            await pipes.ended_or_too_much
    except TimeoutError as error:
        raise ProgramError(f"audit.program.file: {file} did not end within {settings.timeout:g} s") from error
    finally:
        if not pipes.closed.done():
            with suppress(ProcessLookupError):  # all of them have just ended
                os.killpg(transport.get_pid(), signal.SIGKILL)
            # A process that has left the group may hold the pipes open, so their end is not waited for.
            if stdin.get_write_buffer_size():
                stdin.abort()
            for number in (1, 2):
                cast(asyncio.ReadTransport, transport.get_pipe_transport(number)).close()
            await pipes.closed
        transport.close()
    if len(pipes.printed) > most:
        raise ProgramError(f"audit.program: expected at most {most:,} bytes from {file}, got more")
    if status := transport.get_returncode():
        last = pipes.complaints.decode(errors="replace").strip()[-_SHOWN:]
        raise ProgramError(f"audit.program: {file} ended with exit status {status}: {last}")
    return bytes(pipes.printed)


class _Pipes(asyncio.SubprocessProtocol):
    """Keeps what a program prints: of its output at most a little more than `most` bytes, of its complaints the last.

    `closed`: the program has ended, and its pipes are closed. `ended_or_too_much`: this, or it has printed more than
    `most` bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.printed = bytearray()
        self.complaints = b""
        loop = asyncio.get_running_loop()
        self.ended_or_too_much: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.complaints = (self.complaints + data)[-4 * _SHOWN :]
        elif len(self.printed) <= self._most:
            self.printed += data
            if len(self.printed) > self._most:
                _set_done(self.ended_or_too_much)

    @override
    def connection_lost(self, _exc: Exception | None) -> None:
        _set_done(self.ended_or_too_much)
        _set_done(self.closed)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
