"""Data sets of an iteration as files: made at the first request, and then served from the disk, in ranges too."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse

from services.api.given import Iteration, RunName
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


@router.get("/{kind}", response_class=FileResponse, responses={**_FILE, **documented(404, 409)})
def get_export(request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all") -> FileResponse:
    """An iteration's questions with their labels; `only=kept` those that the Solver learned from.

    The same rows give the same bytes. An interrupted download goes on by `Range`; the `ETag` is the file's sha256.
    """
    found = _export(request, run, iteration, only, kind)
    headers = {"ETag": f'"{found.manifest["sha256"]}"'}
    return FileResponse(found.path, media_type=_MEDIA[kind], filename=found.path.name, headers=headers)


@router.get("/{kind}/manifest", responses=documented(404, 409))
def get_manifest(request: Request, run: RunName, iteration: Iteration, kind: Format, only: Only = "all") -> Manifest:
    """What the file holds: rows, verdicts, the checkpoints that made them, the configuration, its size and sha256."""
    return Manifest.model_validate(_export(request, run, iteration, only, kind).manifest)


def _export(request: Request, run: str, iteration: int, only: Only, kind: Format) -> Export:
    state = request.app.state
    try:
        return export(state.store, state.exports, run, iteration, only, kind)
    except NotFinal as error:
        raise HTTPException(409, str(error)) from error
