"""Which files of the home go into an archive, under which names, and where they go in the home that restores it.

A name is SECTION/KIND/REST, such as `runs/demo/checkpoints/solver/1/model.safetensors`. Exports can be made again, and
work in progress is of use only to the process that made it, so neither is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from core.types import STAGES
from orchestrator.disk.files import ROLES, Kind, entries, folder_of
from orchestrator.installation.home import Home
from storage import queries
from storage.archive import run_of, section_of
from storage.checkpoints import MANIFEST, MODEL_FILES
from storage.errors import ArchiveError
from storage.queries.runs import RUN_NAME
from storage.texts import evaluation_path, texts_path

_T = "(?:0|[1-9][0-9]{0,8})"
_TEXTS = r"(?:\.parquet|\.parts/[0-9]{8}\.parquet)"
_MODEL = f"{_T}/.+(?:{'|'.join(map(re.escape, sorted(MODEL_FILES)))})"
_EVALUATION = re.compile(f"[0-9a-f]{{16}}{_TEXTS}")
_OF_RUN: dict[Kind, re.Pattern[str]] = {
    "checkpoints": re.compile(f"(?:{'|'.join(ROLES)})/{_MODEL}"),
    "optimisers": re.compile(f"solver/{_MODEL}"),
    "texts": re.compile(f"{_T}/(?:{'|'.join(STAGES)}){_TEXTS}"),
}


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of the home, and its name in the archive. `may_be_newer`: it may have texts of rows that are newer than
    the transaction in which it was listed."""

    name: str
    path: Path
    may_be_newer: bool = False


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a member goes: `top` appears at once, with all its files. It is a folder with the file `below` in it, or,
    if `below` is None, the file itself."""

    top: Path
    below: str | None


def destination(home: Home, section: str, name: str) -> Destination:
    """Where a member of a section goes. Raises `ArchiveError` if an archive has no such members."""
    kind, _, rest = name.removeprefix(f"{section}/").partition("/")
    run = run_of(section)
    if kind == "evaluations" and _EVALUATION.fullmatch(rest):
        key, _, part = rest.partition("/")
        return Destination(evaluation_path(home.texts, key).parent / key, part or None)
    for of_run, pattern in _OF_RUN.items():
        if run is not None and RUN_NAME.fullmatch(run) and kind == of_run and pattern.fullmatch(rest):
            return Destination(folder_of(home, of_run) / run, rest)
    raise ArchiveError(f"{name}: expected a file of a checkpoint, of an optimiser's moments, or of texts")


def files_of(home: Home, session: Session, run: str | None) -> Iterator[ArchivedFile]:
    """The files of a run, as its rows name them; of the evaluations of models that are no run's, if it is None."""
    section = section_of(run)
    if run is not None:
        yield from _checkpoints(home, session, run)
        for row in queries.ledger.stages_of(session, run):
            path = texts_path(home.texts, run, row.iteration, row.stage)
            yield from _texts(path, path.parent.parent, f"{section}/texts", done=row.status == "done")
    for evaluation in queries.archived.evaluations_of(session, run):
        path = evaluation_path(home.texts, evaluation.id)
        yield from _texts(path, path.parent, f"{section}/evaluations", done=evaluation.finished_at is not None)


def _checkpoints(home: Home, session: Session, run: str) -> Iterator[ArchivedFile]:
    """The published files of checkpoints, and the moments that are there. Moments are removed once no round needs
    them."""
    section = section_of(run)
    for checkpoint in queries.checkpoints.checkpoints_of(session, run):
        names = () if checkpoint.files_removed else (*queries.checkpoints.manifest_of(session, checkpoint.id), MANIFEST)
        prefix = f"{section}/checkpoints/{checkpoint.role}/{checkpoint.iteration}"
        yield from (ArchivedFile(f"{prefix}/{name}", Path(checkpoint.path) / name) for name in names)
    published = queries.run_rows.moments(session)
    for folder in entries(home.optimisers / run / "solver"):
        if f"{run}/solver/{folder.name}" in published:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                yield ArchivedFile(f"{section}/optimisers/{path.relative_to(home.optimisers / run).as_posix()}", path)


def _texts(path: Path, root: Path, prefix: str, *, done: bool) -> Iterator[ArchivedFile]:
    """The file with the texts of a stage or an evaluation, and until that is done the parts of it. At its end the parts
    are merged into the file, shortly before it is done."""
    parts = [] if done else sorted(path.with_suffix(".parts").glob("*.parquet"))
    for file in [path, *parts]:
        if file.exists():
            is_merged_early = file == path and not done
            yield ArchivedFile(f"{prefix}/{file.relative_to(root).as_posix()}", file, is_merged_early)
