"""Exports that are being written. Two threads write the files for all requests, since this takes much processor time;
requests for the same file share one writing.

A client or a proxy gives up when it gets no byte for half a minute, and a large file takes minutes. So a file that is
not written soon is sent while it grows, and white space comes before a manifest that has to wait for its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio import open_file, to_thread
from fastapi import HTTPException, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from services.api.dependencies import in_own_threads
from storage.exports.files import Export, Planned, written_once

PATIENCE_S = 2.0  # a file that takes no longer is sent with its size and `ETag`
_SILENCE_S = 5.0  # between two characters of white space
_PAUSE_S = 0.1  # before a growing file is looked at again
_PIECE = 1 << 16  # bytes
_written = in_own_threads("exports", 2)(written_once)


class Writing:
    """A file that is being written, or that is there already. Once begun it is finished, even if no client waits for
    it any more. To be made in the event loop."""

    def __init__(self, planned: Planned) -> None:
        self.path, self._part = planned.path, planned.path

        def write(part: Path) -> dict[str, Any]:
            self._part = part
            return planned.write(part)

        self.task = asyncio.ensure_future(_written(replace(planned, write=write)))

    async def is_done(self, seconds: float | None) -> bool:
        """Wait at most so long for the end, None: until the end; and return whether it has come."""
        await asyncio.wait({self.task}, timeout=seconds)
        return self.task.done()

    def result(self) -> Export:
        """The written file. Raises what the writing has raised."""
        return self.task.result()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the file, as they are written. If the writing fails, this raises, which breaks the connection
        before the end, so that no client takes the file for complete."""
        while not self._part.exists():
            if await self.is_done(_PAUSE_S):
                self._part = self.result().path
        async with await open_file(self._part, "rb") as file:
            is_last = False
            while not is_last:
                is_last = await self.is_done(_PAUSE_S)
                if is_last:
                    self.result()
                while piece := await file.read(_PIECE):
                    yield piece


async def begin(request: Request, plan: Callable[[], Planned]) -> Writing:
    """Begin to write the file that `plan` names, unless it is there or is being written. Nothing is begun for a client
    that disconnected while it waited."""
    planned = await to_thread.run_sync(plan)
    if await request.is_disconnected():
        raise HTTPException(503, "the client disconnected while it waited")
    writings: dict[Path, Writing] = request.app.state.writings
    writing = writings.get(planned.path)
    if writing is None or writing.task.done():
        new = writing = writings[planned.path] = Writing(planned)

        def forget(_: object) -> None:
            if writings.get(new.path) is new:
                del writings[new.path]

        writing.task.add_done_callback(forget)
    return writing


async def manifest_of(writing: Writing, kind: type[BaseModel]) -> Response:
    """The manifest of a file, once it is written."""

    def answer() -> bytes:
        return kind.model_validate(writing.result().manifest).model_dump_json().encode()

    async def after_spaces() -> AsyncIterator[bytes]:
        yield b" "
        while not await writing.is_done(_SILENCE_S):
            yield b" "
        yield answer()

    if await writing.is_done(PATIENCE_S):
        return Response(answer(), media_type="application/json")
    return StreamingResponse(after_spaces(), media_type="application/json")
