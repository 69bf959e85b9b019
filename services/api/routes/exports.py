"""Exports of an iteration as files. A file is written at the first request, and then served from disk, also in ranges.

Writing a file takes seconds of processor time, and looking for a written one takes a tenth of a second if the iteration
is large. So two threads do this for all requests, and requests for the same file wait for each other. A file is written
once, however many clients request it at once.
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
_MEDIA_TYPES: dict[Format, str] = {
    "jsonl": "application/jsonl",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "huggingface": "application/zip",
}
_FILE_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {media.split(";")[0]: {} for media in _MEDIA_TYPES.values()}}
}
_export_in_thread = in_own_threads("exports", 2)(export)
Locks = WeakValueDictionary[tuple[str, int, Only, Format], Lock]  # one for each file that is being requested now


@router.get("/{kind}", response_class=FileResponse, responses={**_FILE_RESPONSE, **documented(404, 409)})
async def get_export(
    request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all"
) -> FileResponse:
    """An iteration's questions with their labels. `only=kept` selects those that the Solver learned from.

    The same rows give the same bytes. An interrupted download can be continued with `Range`. The `ETag` is the file's
    sha256.
    """
    file = await _export(request, run, iteration, only, kind)
    headers = {"ETag": f'"{file.manifest["sha256"]}"'}
    return FileResponse(file.path, media_type=_MEDIA_TYPES[kind], filename=file.path.name, headers=headers)


@router.get("/{kind}/manifest", responses=documented(404, 409))
async def get_manifest(
    request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all"
) -> Manifest:
    """What the file holds: rows, verdicts, the checkpoints that made them, the configuration, its size and sha256."""
    return Manifest.model_validate((await _export(request, run, iteration, only, kind)).manifest)


async def _export(request: Request, run: str, iteration: int, only: Only, kind: Format) -> Export:
    """Write the file unless it exists. A file that is begun is finished, even if its client disconnects, and the next
    request finds it. Nothing is begun for a client that disconnected while it waited."""
    state, locks = request.app.state, request.app.state.export_locks
    async with locks.setdefault((run, iteration, only, kind), Lock()):
        if await request.is_disconnected():
            raise HTTPException(503, "the client disconnected while it waited")
        try:
            return await _export_in_thread(state.store, state.exports, run, iteration, only, kind)
        except NotFinal as error:
            raise HTTPException(409, str(error)) from error
