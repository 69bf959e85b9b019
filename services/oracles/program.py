"""The oracle that is a program of one's own, in any language. Its format is in docs/your-own.md.

The program is started once for all pseudo-labels of an iteration. Its standard input has one line of JSON for each,
with `question` and `label`; it prints one line of JSON for each, in the same order, with `verdict` and, if it knows the
answer, `truth`. The input is text of models, which reaches the program as data only, never as an argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

from core.errors import CoevoError
from core.settings.audit import Program
from core.types import OracleLabel, OracleVerdict
from core.unicode import from_json

ORACLE = "program"
_MAX_TRUTH = 2_000  # characters
_MOST_PER_LABEL = 32_768  # bytes of output; more than the longest `truth` in JSON's longest spelling
_PART = 65_536  # bytes that are read at once
_SHOWN = 500  # characters of a program's output that an error shows


class ProgramError(CoevoError):
    """A program that cannot be run, fails, or does not print what is expected of it."""


def refuse_unrunnable(settings: Program) -> None:
    """Raise `ProgramError` if the program is no executable file."""
    file = Path(settings.file)
    if not file.is_file() or not os.access(file, os.X_OK):
        problem = (
            f"{file}, which is not executable; chmod +x {file}" if file.is_file() else f"{file}, which is not there"
        )
        raise ProgramError(f"expected an executable file, got {problem}")


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
    return [
        _label(key, f"audit.program: {settings.file}, line {number}", line.decode(errors="replace"))
        for number, ((key, _, _), line) in enumerate(zip(rows, printed, strict=True), 1)
    ]


async def _output(settings: Program, given: bytes, most: int) -> bytes:
    """What the program prints until it ends, at most `most` bytes. If it is late or prints more, it is killed with all
    that it started."""
    pipe, file = subprocess.PIPE, settings.file
    try:
        process = await asyncio.create_subprocess_exec(
            file, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        raise ProgramError(f"audit.program: {file} cannot be run: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(settings.timeout):
            _, printed, complaints, status = await asyncio.gather(
                _feed(process.stdin, given), _read(process.stdout, most), _tail(process.stderr), process.wait()
            )
    except TimeoutError as error:
        raise ProgramError(f"audit.program.timeout: {file} did not end within {settings.timeout:g} s") from error
    except asyncio.LimitOverrunError as error:
        raise ProgramError(f"audit.program: expected at most {most:,} bytes from {file}, got more") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status != 0:
        last = complaints.decode(errors="replace").strip()[-_SHOWN:]
        raise ProgramError(f"audit.program: {file} ended with exit status {status}: {last}")
    return printed


async def _feed(stream: asyncio.StreamWriter, given: bytes) -> None:
    with suppress(ConnectionError):  # the program does not read all of it
        stream.write(given)
        await stream.drain()
    stream.close()


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    """All bytes until the end. Raises `LimitOverrunError` as soon as there are more than `most`."""
    read = bytearray()
    while part := await stream.read(_PART):
        read += part
        if len(read) > most:
            raise asyncio.LimitOverrunError("too many bytes", len(read))
    return bytes(read)


async def _tail(stream: asyncio.StreamReader) -> bytes:
    """The last bytes before the end."""
    last = b""
    while part := await stream.read(_PART):
        last = (last + part)[-4 * _SHOWN :]
    return last


def _label(key: str, position: str, line: str) -> OracleLabel:
    known = get_args(OracleVerdict)
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
    return OracleLabel(key, ORACLE, row["verdict"], None if truth is None else str(truth))
