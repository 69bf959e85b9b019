"""The files of checkpoints, of the optimisers' moments, and what nothing refers to."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from rich.filesize import decimal

from core.settings.config import SelfTraining
from orchestrator.check.start import why_no_longer
from orchestrator.disk.garbage import garbage
from orchestrator.stages.chain import Chain
from orchestrator.verification.checks import Check
from orchestrator.verification.subject import Subject
from storage import queries
from storage.checkpoints import digest, published_manifest, verify
from storage.errors import CheckpointError, NotThere
from storage.rows import ENDED


def checkpoints(check: Check, subject: Subject) -> None:
    """The manifest of each checkpoint has the sha256 that its row has, and each of its files that of the manifest.

    With `Subject.quick`, only manifests are read. Files that were removed because the run does not keep them are not
    missing.
    """
    with subject.store.read() as session:
        rows = queries.checkpoints.checkpoints_of(session, subject.name)
        manifests = {row.id: queries.checkpoints.manifest_of(session, row.id) for row in rows}
    removed = [row.id for row in rows if row.files_removed]
    for row in rows:
        check.expect(f"{row.id}: sha256 of the manifest in the row", row.sha256, digest(manifests[row.id]))
        if not row.files_removed:
            _files(check, row.id, Path(row.path), row.sha256, quick=subject.quick)
    if removed:
        check.notes.append(f"the files of {len(removed)} checkpoints were removed, as checkpoints.keep says")


def moments(check: Check, subject: Subject) -> None:
    """The optimiser's moments that the home has are those that the stages' results name, and those that the next round
    begins with are there. Others are removed during the run."""
    config = subject.config
    published = {t: result["optimiser"] for t, result in subject.done("train_solver") if result.get("optimiser")}
    folder = subject.home.optimisers / subject.name / "solver"
    for t, sha256 in published.items():
        if (folder / str(t)).is_dir():
            check.checked += 1
            _files(check, f"moments of {subject.name}/solver/{t}", folder / str(t), sha256, quick=subject.quick)
    needed = _needed_round(subject) if isinstance(config, SelfTraining) and config.rounds_are_one_training else None
    if needed in published and not (folder / str(needed)).is_dir():
        check.violate(f"moments of {subject.name}/solver/{needed}", f"a folder {folder / str(needed)}", "nothing")


def _needed_round(subject: Subject) -> int | None:
    """The round whose moments the next round begins with; None if none can follow, or it begins with the base model."""
    if subject.run.status in ENDED and why_no_longer(subject.config, subject.run.status) is not None:
        return None
    last = max((t for t, _ in subject.done("train_solver")), default=0)
    with subject.store.read() as session:
        try:
            start = Chain(session, subject.name, subject.config, last + 1).checkpoint("solver", last)
        except NotThere:  # `lineage` names what is missing
            return None
    return start.iteration if start.role == "solver" else None


def _files(check: Check, row: str, folder: Path, sha256: str, *, quick: bool) -> None:
    try:
        if quick:
            stored = digest(published_manifest(folder))
            if stored != sha256:
                check.violate(f"{row}: sha256 of its manifest", sha256, stored)
        else:
            verify(folder, sha256)
    except CheckpointError as error:
        check.violate(f"files of {row}", "the files of its manifest, unchanged", str(error))
    except OSError as error:  # the disk cannot read it, or the folder is closed to this user
        check.violate(f"files of {row}", "readable files", f"{error.filename}: {error.strerror}")


def left_over(check: Check, subject: Subject) -> None:
    """What `coevo gc` would call garbage of the run is a note: it takes room and does no harm."""
    items = garbage(subject.home, subject.store, timedelta(0), only_run=subject.name)
    check.checked = len(items)
    check.notes += [f"{item.path}: {item.why}; `coevo gc` removes its {decimal(item.bytes)}" for item in items]
