"""Exports as files: questions and votes of one run or several, and the records of an evaluation. A file is written at
the first request, and then served from disk, also in ranges. A file that takes long is sent while it is written
(`services/api/export_writing.py`)."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Any, Self

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import FileResponse, Response, StreamingResponse
from pydantic import Field, field_validator, model_validator
from starlette.datastructures import Headers, State
from starlette.types import Message, Receive, Scope, Send

from services.api.access.head import is_head
from services.api.dependencies import RunName, StoreDependency
from services.api.export_writing import PATIENCE_S, Writing, begin, manifest_of
from services.api.problems import documented
from services.api.question_filters import QuestionFilters
from services.api.routes.evaluations import Key
from services.api.schemas import Manifest, ManifestOfRuns, RecordManifest, RowCounts
from services.evaluations import exports as record_exports
from storage import queries
from storage.errors import StoreError
from storage.exports import runs as exports
from storage.exports.columns import (
    QUESTION_COLUMNS,
    RUN_COLUMNS,
    TEXT_COLUMN,
    VOTE_COLUMNS,
    What,
    oracle_columns,
    table_of,
)
from storage.exports.files import NotFinal, PlainFormat, Planned
from storage.exports.runs import Format
from storage.exports.selection import ITERATIONS_HELP, Selection, iterations_of, parse_iterations, runs_of
from storage.queries.runs import RUN_NAME

router = APIRouter(tags=["exports"])
_RUN = "/runs/{run}/export"
_RECORDS = "/evaluations/{evaluation}/exports/{kind}"
_MEDIA_TYPES: dict[Format, str] = {
    "jsonl": "application/jsonl",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "huggingface": "application/zip",
}
_OF_WHOLE_FILES = ("range", "if-range", "if-none-match")


class SelectionQuery(QuestionFilters):
    """Which questions of a run to select, by iteration and by filters."""

    iterations: str = Field("all", max_length=1_000, description=f"{ITERATIONS_HELP}.", examples=["1,3-5"])

    @field_validator("iterations")
    @classmethod
    def _is_valid(cls, text: str) -> str:
        try:
            parse_iterations(text)
        except StoreError as error:
            raise ValueError(str(error).removeprefix("iterations: ")) from error
        return text


class ExportQuery(SelectionQuery):
    """What an export contains, and its format."""

    what: What = Field("questions", description="One row for each question, or for each vote on them.")
    format: Format = Field("jsonl", description="`huggingface` is a zip of a folder for `datasets.load_dataset`.")
    texts: bool = Field(False, description="Whether votes have what the Solver wrote, where the run keeps it.")

    def selection(self, runs: str | tuple[str, ...]) -> Selection:
        return Selection(runs, self.iterations, self.what, self.as_filter(), self.texts)

    @model_validator(mode="after")
    def _only_votes_have_texts(self) -> Self:
        if self.texts and self.what != "votes":
            raise ValueError(f"texts: expected what=votes, got what={self.what}")
        return self


class RunsExportQuery(ExportQuery):
    """Which runs an export contains besides, by their names or by their experiment."""

    run: list[Annotated[str, Field(pattern=f"^{RUN_NAME.pattern}$")]] = Field(
        [], max_length=200, description="Names of runs.", examples=[["demo"]]
    )
    experiment: str | None = Field(None, max_length=200, description="In place of `run`: all runs of this experiment.")

    @model_validator(mode="after")
    def _names_runs_or_an_experiment(self) -> Self:
        if bool(self.run) == (self.experiment is not None):
            raise ValueError(f"run: expected runs or an experiment, got {'both' if self.run else 'neither'}")
        return self


def _file_responses(*kinds: Format) -> dict[int | str, dict[str, Any]]:
    media_types: dict[str, Any] = {_MEDIA_TYPES[kind].split(";")[0]: {} for kind in kinds or _MEDIA_TYPES}
    not_modified = {"description": "The file has the `ETag` that `If-None-Match` names"}
    return {
        200: {"description": "The file", "content": media_types},
        304: not_modified,
        **documented(400, 404, 409, 416),
    }


_ABOUT_EXPORT = f"""Questions of a run with their labels, or the votes on them. The filters are those of the list of
questions.

The same rows give the same bytes. An interrupted download can be continued with `Range`. The `ETag` is the file's
sha256. A seed is a text in JSONL, and a number in the other formats.

A row of `what=questions`, in which `ORACLE` stands for the name of each oracle that graded some of them:

{table_of((*QUESTION_COLUMNS, *oracle_columns("ORACLE")))}

A row of `what=votes`:

{table_of((*VOTE_COLUMNS, TEXT_COLUMN))}
"""


_ABOUT_EXPORT_OF_RUNS = f"""Questions or votes of several runs in one file, as the export of a run has them, with these
columns before the others:

{table_of(RUN_COLUMNS)}

Runs without an iteration whose questions are all labelled are left out, unless `iterations` names some. The manifest
names them.
"""


@router.get(_RUN, response_class=FileResponse, responses=_file_responses(), description=_ABOUT_EXPORT)
async def get_export(request: Request, run: RunName, query: Annotated[ExportQuery, Query()]) -> Response:
    return await _response(request, await _of_run(request, run, query), query.format)


@router.get(f"{_RUN}/manifest", response_model=Manifest, responses=documented(404, 409))
async def get_manifest(request: Request, run: RunName, query: Annotated[ExportQuery, Query()]) -> Response:
    """What the file holds: columns, rows, verdicts, the checkpoints that made them, the configuration, its size and
    sha256."""
    return await manifest_of(await _of_run(request, run, query), Manifest)


@router.get("/export", response_class=FileResponse, responses=_file_responses(), description=_ABOUT_EXPORT_OF_RUNS)
async def get_export_of_runs(request: Request, query: Annotated[RunsExportQuery, Query()]) -> Response:
    return await _response(request, await _of_runs(request, query), query.format)


@router.get("/export/manifest", response_model=ManifestOfRuns, responses=documented(404, 409))
async def get_manifest_of_runs(request: Request, query: Annotated[RunsExportQuery, Query()]) -> Response:
    """What the file holds, as the manifest of a run's export says it; the runs with their iterations and
    configurations; and the runs that it leaves out."""
    return await manifest_of(await _of_runs(request, query), ManifestOfRuns)


@router.get(f"{_RUN}/rows", responses=documented(404))
def count_rows(store: StoreDependency, run: RunName, query: Annotated[SelectionQuery, Query()]) -> RowCounts:
    """How many rows an export would have. No file is written. `iterations` is empty while the questions of some are not
    all labelled yet, so that there is no export."""
    filters = query.as_filter()
    with store.read() as session:
        try:
            iterations = iterations_of(session, run, query.iterations)
        except NotFinal:
            iterations = ()
        counts = [queries.browse.count_rows(session, run, iteration, filters) for iteration in iterations]
    questions, votes = sum(count for count, _ in counts), sum(count for _, count in counts)
    return RowCounts(iterations=list(iterations), questions=questions, votes=votes)


@router.get(_RECORDS, response_class=FileResponse, responses=_file_responses("jsonl", "csv", "parquet"))
async def get_record_export(request: Request, evaluation: Key, kind: PlainFormat) -> Response:
    """The records of an evaluation, one for each question: the true answer, and every answer with its verdict, tokens
    and, where they are kept, the whole reply.

    The same rows give the same bytes. An interrupted download can be continued with `Range`. The `ETag` is the file's
    sha256.
    """
    return await _response(request, await _records(request, evaluation, kind), kind)


@router.get(f"{_RECORDS}/manifest", response_model=RecordManifest, responses=documented(404, 409))
async def get_record_manifest(request: Request, evaluation: Key, kind: PlainFormat) -> Response:
    """What the file holds: its rows and answers, the evaluation's manifest, its size and sha256."""
    return await manifest_of(await _records(request, evaluation, kind), RecordManifest)


async def _response(request: Request, writing: Writing, kind: Format) -> Response:
    """The file. One that takes long is sent while it is written, unless the request needs its size or `ETag`, which are
    not known before its end."""
    needs_whole_file = is_head(request) or any(name in request.headers for name in _OF_WHOLE_FILES)
    if not await writing.is_done(None if needs_whole_file else PATIENCE_S):
        disposition = f'attachment; filename="{writing.path.name}"'
        return StreamingResponse(
            writing.pieces(), media_type=_MEDIA_TYPES[kind], headers={"Content-Disposition": disposition}
        )
    file = writing.result()
    headers = {"ETag": f'"{file.manifest["sha256"]}"'}
    lines = request.headers.getlist("if-none-match")  # the tags of what the client has already (RFC 9110, 13.1.2)
    tags = {name.strip().removeprefix("W/") for line in lines for name in line.split(",")}
    if tags & {"*", headers["ETag"]}:
        return Response(status_code=304, headers=headers)
    return _File(file.path, media_type=_MEDIA_TYPES[kind], filename=file.path.name, headers=headers)


class _File(FileResponse):
    """A file. A `Range` that it does not have is refused like everything else, as `application/problem+json`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused: Message | None = None

        async def unless_refused(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] >= 400:
                refused = message
            if refused is None:
                await send(message)

        await super().__call__(scope, receive, unless_refused)
        if refused is not None:
            size = Headers(raw=refused["headers"]).get("content-range")
            problem = f"Range: expected ranges of bytes within the file, got {Headers(scope=scope)['range'][:100]!r}"
            raise HTTPException(refused["status"], problem, {"Content-Range": size} if size else None)


def _of_run(request: Request, run: str, query: ExportQuery) -> Awaitable[Writing]:
    return begin(request, partial(_planned, request.app.state, query, run))


def _of_runs(request: Request, query: RunsExportQuery) -> Awaitable[Writing]:
    def planned() -> Planned:
        runs = tuple(query.run)
        if query.experiment is not None:
            with request.app.state.store.read() as session:
                runs = runs_of(session, query.experiment)
        return _planned(request.app.state, query, runs)

    return begin(request, planned)


def _planned(state: State, query: ExportQuery, runs: str | tuple[str, ...]) -> Planned:
    texts, selection = state.installation.texts, query.selection(runs)
    return exports.plan(state.store, state.exports, selection, query.format, texts, state.ending.is_set)


def _records(request: Request, key: str, kind: PlainFormat) -> Awaitable[Writing]:
    state = request.app.state
    of_state = (state.store, state.exports, state.installation.texts)
    return begin(request, partial(record_exports.plan, *of_state, key, kind, state.ending.is_set))
