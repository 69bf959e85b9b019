"""Tags and the note of a run: people's words, which do not change what the run does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from storage.errors import StoreError
from storage.models import Runs
from storage.queries.runs import get_run
from storage.queries.tables import table_of
from storage.rows import RunDetail, TagCount

TAG = re.compile(r"[a-z0-9][a-z0-9._:/-]{0,39}")
MOST_TAGS, LONGEST_NOTE = 20, 4_000  # of one run; characters


def annotate(
    session: Session,
    run: str,
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    note: str | None = None,
    by: str | None = None,
) -> RunDetail:
    """Add and remove tags of a run, and set its note, unless `note` is None. `by` is who does it, if that is known.

    If nothing changes, the run stays as it is, also who changed it last. Raises `NotThere`, and `StoreError` if a tag
    or the note is not allowed.
    """
    refuse_tags(add)
    # The row is locked, so that of two people who add a tag at once, none loses it.
    session.execute(select(Runs.name).where(Runs.name == run).with_for_update())
    before = get_run(session, run)
    tags = sorted({*before.tags, *add} - {*remove})
    if len(tags) > MOST_TAGS:
        raise StoreError(f"run {run}: tags: expected at most {MOST_TAGS}, got {len(tags)}")
    if note is not None and len(note) > LONGEST_NOTE:
        raise StoreError(f"run {run}: note: expected at most {LONGEST_NOTE:,} characters, got {len(note):,}")
    text = before.note if note is None else note
    if (tags, text) == (before.tags, before.note):
        return before
    values = {"tags": tags, "note": text, "noted_by": by, "noted_at": datetime.now(UTC)}
    session.execute(update(table_of(Runs)).where(Runs.name == run).values(values))
    return get_run(session, run)


def refuse_tags(tags: Collection[str]) -> None:
    """Raise `StoreError` unless each of these is allowed as a tag."""
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise StoreError(
                "tag: expected at most 40 small letters, digits and . _ : / -, first a letter or digit, "
                f"got {tag[:100]!r}"
            )


def tags_in_use(session: Session) -> list[TagCount]:
    """All tags of runs, in alphabetical order."""
    counts = Counter(tag for tags in session.scalars(select(Runs.tags)) for tag in tags)
    return [TagCount(tag, runs) for tag, runs in sorted(counts.items())]
