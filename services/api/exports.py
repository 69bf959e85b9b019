"""Data sets of an iteration as files: made at the first request, and then served from the disk, in ranges too.

To make one takes seconds of a processor, and to find one that is made a tenth of a second where an iteration is large.
So two threads do it for all requests, and those for the same file wait for each other: it is made once, however many
ask at once.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from anyio import Lock
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse

from services.api.dependencies import Iteration, RunName, in_own_threads
from services.api.problems import documented
from services.api.schemas import Manifest
from storage.exports import Export, Format, NotFinal, Only, export

router = APIRouter(prefix="/runs/{run}/iterations/{iteration}/exports", tags=["exports"])
_MEDIA: dict[Format, str] = {
    "jsonl": "application/jsonl",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "huggingface": "application/zip",
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {media.split(";")[0]: {} for media in _MEDIA.values()}}
}
_made = in_own_threads("exports", 2)(export)
Locks = WeakValueDictionary[tuple[str, int, Only, Format], Lock]  # one for each file that somebody asks for now


@router.get("/{kind}", response_class=FileResponse, responses={**_FILE, **documented(404, 409)})
async def get_export(
    request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all"
) -> FileResponse:
    """An iteration's questions with their labels; `only=kept` those that the Solver learned from.

    The same rows give the same bytes. An interrupted download goes on by `Range`; the `ETag` is the file's sha256.
    """
    made = await _export(request, run, iteration, only, kind)
    headers = {"ETag": f'"{made.manifest["sha256"]}"'}
    return FileResponse(made.path, media_type=_MEDIA[kind], filename=made.path.name, headers=headers)


@router.get("/{kind}/manifest", responses=documented(404, 409))
async def get_manifest(
    request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all"
) -> Manifest:
    """What the file holds: rows, verdicts, the checkpoints that made them, the configuration, its size and sha256."""
    return Manifest.model_validate((await _export(request, run, iteration, only, kind)).manifest)


async def _export(request: Request, run: str, iteration: int, only: Only, kind: Format) -> Export:
    """A file that is begun is finished, though its client hangs up: the next request finds it made. For a client that
    hung up while it waited nothing is begun."""
    state, locks = request.app.state, request.app.state.export_locks
    async with locks.setdefault((run, iteration, only, kind), Lock()):
        if await request.is_disconnected():
            raise HTTPException(503, "the client hung up")
        try:
            return await _made(state.store, state.exports, run, iteration, only, kind)
        except NotFinal as error:
            raise HTTPException(409, str(error)) from error
