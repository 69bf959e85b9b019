"""Exports as files: an iteration's questions, and the records of an evaluation. A file is written at the first request,
and then served from disk, also in ranges.

Writing a file takes seconds of processor time, and looking for a written one takes a tenth of a second if the iteration
is large. So two threads do this for all requests, and requests for the same file wait for each other. A file is written
once, however many clients request it at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from anyio import Lock
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse

from services.api.dependencies import Iteration, RunName, in_own_threads
from services.api.problems import documented
from services.api.routes.evaluations import Key
from services.api.schemas import Manifest, RecordManifest
from services.record_exports import export_records
from storage.export_files import Export, NotFinal, PlainFormat
from storage.exports import Format, Only, export

router = APIRouter(tags=["exports"])
_QUESTIONS = "/runs/{run}/iterations/{iteration}/exports/{kind}"
_RECORDS = "/evaluations/{evaluation}/exports/{kind}"
_MEDIA_TYPES: dict[Format, str] = {
    "jsonl": "application/jsonl",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "huggingface": "application/zip",
}
Locks = WeakValueDictionary[tuple[str | int, ...], Lock]  # one for each file that is being requested now


def _file_responses(*kinds: Format) -> dict[int | str, dict[str, Any]]:
    media_types: dict[str, Any] = {_MEDIA_TYPES[kind].split(";")[0]: {} for kind in kinds or _MEDIA_TYPES}
    return {200: {"description": "The file", "content": media_types}, **documented(404, 409)}


@router.get(_QUESTIONS, response_class=FileResponse, responses=_file_responses())
async def get_export(
    request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all"
) -> FileResponse:
    """An iteration's questions with their labels. `only=kept` selects those that the Solver learned from.

    The same rows give the same bytes. An interrupted download can be continued with `Range`. The `ETag` is the file's
    sha256.
    """
    return _response(await _questions(request, run, iteration, only, kind), kind)


@router.get(f"{_QUESTIONS}/manifest", responses=documented(404, 409))
async def get_manifest(
    request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all"
) -> Manifest:
    """What the file holds: rows, verdicts, the checkpoints that made them, the configuration, its size and sha256."""
    return Manifest.model_validate((await _questions(request, run, iteration, only, kind)).manifest)


@router.get(_RECORDS, response_class=FileResponse, responses=_file_responses("jsonl", "csv", "parquet"))
async def get_record_export(request: Request, evaluation: Key, kind: PlainFormat) -> FileResponse:
    """The records of an evaluation, one for each question: the true answer, and every answer with its verdict, tokens
    and, where they are kept, the whole reply.

    The same rows give the same bytes. An interrupted download can be continued with `Range`. The `ETag` is the file's
    sha256.
    """
    return _response(await _records(request, evaluation, kind), kind)


@router.get(f"{_RECORDS}/manifest", responses=documented(404, 409))
async def get_record_manifest(request: Request, evaluation: Key, kind: PlainFormat) -> RecordManifest:
    """What the file holds: its rows and answers, the evaluation's manifest, its size and sha256."""
    return RecordManifest.model_validate((await _records(request, evaluation, kind)).manifest)


def _response(file: Export, kind: Format) -> FileResponse:
    headers = {"ETag": f'"{file.manifest["sha256"]}"'}
    return FileResponse(file.path, media_type=_MEDIA_TYPES[kind], filename=file.path.name, headers=headers)


def _questions(request: Request, run: str, iteration: int, only: Only, kind: Format) -> Awaitable[Export]:
    state = request.app.state
    write = partial(export, state.store, state.exports, run, iteration, only, kind)
    return _written(request, (run, iteration, only, kind), write)


def _records(request: Request, key: str, kind: PlainFormat) -> Awaitable[Export]:
    state = request.app.state
    write = partial(export_records, state.store, state.exports, state.texts, key, kind)
    return _written(request, (key, kind), write)


@in_own_threads("exports", 2)
def _in_thread(write: Callable[[], Export]) -> Export:
    return write()


async def _written(request: Request, key: tuple[str | int, ...], write: Callable[[], Export]) -> Export:
    """Write the file unless it exists. A file that is begun is finished, even if its client disconnects, and the next
    request finds it. Nothing is begun for a client that disconnected while it waited."""
    async with request.app.state.export_locks.setdefault(key, Lock()):
        if await request.is_disconnected():
            raise HTTPException(503, "the client disconnected while it waited")
        try:
            return await _in_thread(write)
        except NotFinal as error:
            raise HTTPException(409, str(error)) from error
