"""Tags and notes of runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from services.api.access.keys import OF_KEY, PERSON
from services.api.dependencies import RunName, StoreDependency
from services.api.problems import documented
from storage import queries
from storage.queries.run_notes import LONGEST_NOTE, MOST_TAGS, TAG
from storage.rows import TagCount

router = APIRouter(tags=["notes"])
writing = APIRouter(tags=["notes"])  # needs the scope `run`, like managing runs

_Tags = Annotated[list[Annotated[str, Field(pattern=f"^{TAG.pattern}$")]], Field(max_length=MOST_TAGS)]


class RunNotes(BaseModel):
    """Tags to add to a run and to remove from it, and its new note."""

    model_config = ConfigDict(extra="forbid")

    add: _Tags = Field([], examples=[["baseline"]])
    remove: _Tags = Field([], examples=[["draft"]])
    note: str | None = Field(
        None,
        pattern=f"^[^\\x00]{{0,{LONGEST_NOTE}}}$",
        examples=["The filter was off by mistake."],
        description="Plain text with line breaks. Null: the note stays as it is.",
    )
    by: str | None = Field(None, pattern=PERSON, examples=["ann"], description=f"Who changes them. {OF_KEY}")


class NotesOfRun(BaseModel):
    """The tags and the note of a run, and who changed them last."""

    run: str
    tags: list[str]
    note: str
    noted_by: str | None
    noted_at: datetime | None


@router.get("/tags")
def list_tags(store: StoreDependency) -> list[TagCount]:
    """All tags of runs, in alphabetical order."""
    with store.read() as session:
        return queries.run_notes.tags_in_use(session)


@writing.post("/runs/{run}/notes", responses=documented(404, 409))
def annotate_run(request: Request, store: StoreDependency, run: RunName, body: RunNotes) -> NotesOfRun:
    """Change the tags and the note of a run. This does not change what the run does, and is possible at any time."""
    by: str | None = getattr(request.state, "key_name", body.by)
    with store.write() as session:
        row = queries.run_notes.annotate(session, run, add=body.add, remove=body.remove, note=body.note, by=by)
    return NotesOfRun(run=run, tags=row.tags, note=row.note, noted_by=row.noted_by, noted_at=row.noted_at)
