"""Whether the home, the disks, the memory and Ray's folder are such that the services and a run can use them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil

from orchestrator.check.machine.result import CheckFailed, Finding, Subject, existing, ok, skipped
from orchestrator.check.size.memory import GIB, OTHER_FILES, disk_lines
from orchestrator.check.size.shapes import SizingError
from orchestrator.installation import cluster
from orchestrator.installation.home import refuse_open

_SERVICES_MEMORY = 2 * GIB  # of Ray, Prefect and the API
_SHM = Path("/dev/shm")  # noqa: S108 (Ray's own choice)
# Ray's rule for its object store: this share of the machine's memory, in /dev/shm. If that is smaller, Ray uses the
# temporary folder, which is slow, except that a /dev/shm of 10 GB or more is always used.
_OBJECT_STORE_SHARE, _SHM_ENOUGH = 0.3, 10**10
_FULL = 0.95  # above this share of its disk Ray stores no objects there (local_fs_capacity_threshold)


def check_home(subject: Subject) -> Finding:
    """Whether the home, or the folder in which it will be made, can be written to."""
    path = subject.home.path
    folder = existing(path)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CheckFailed(
            f"{folder} cannot be written to: {error.strerror}",
            "set COEVO_HOME to a folder of your own, or change the owner of this one",
        ) from error
    if folder != path:
        return ok(f"{path} will be made by `coevo up`")
    refuse_open(path)
    return ok(str(path))


def check_disk(subject: Subject) -> Finding:
    """Whether the home's disk has room for the services' files and for what the preset takes."""
    free, needed, what = subject.free(subject.home.path), float(OTHER_FILES), "the services take"
    if subject.config is not None:
        try:
            needed = GIB * sum(disk_lines(subject.config).values())
        except SizingError as error:
            return Finding("warning", f"{_gib(free)} free; how much the run takes is not known: {error}")
        what = "the run's checkpoints and the services take"
    detail = f"{_gib(free)} free on the disk of {subject.home.path}; {what} up to {_gib(needed)}"
    if free < needed:
        raise CheckFailed(detail, "free space, or set COEVO_HOME to a folder on a larger disk")
    return ok(detail)


def check_shared_memory(subject: Subject) -> Finding:
    """Whether /dev/shm holds Ray's object store and the buffers of NCCL."""
    if not _SHM.is_dir():
        return skipped("this system has no /dev/shm")
    if cluster.running(subject.home):
        return skipped("Ray is up and has its share")
    free, expected = subject.free(_SHM), min(_OBJECT_STORE_SHARE * psutil.virtual_memory().available, _SHM_ENOUGH)
    detail = f"{_gib(free)} free in {_SHM}, of {_gib(expected)} that Ray wants for its objects"
    if free < expected:
        remedy = "start the container with a larger one (docker run --shm-size, an emptyDir of medium Memory)"
        return Finding("warning", f"{detail}; Ray would put them into its temporary folder, which is slow", remedy)
    return ok(detail)


def check_memory(_: Subject) -> Finding:
    """Whether the services fit into the machine's free memory."""
    memory = psutil.virtual_memory()
    detail = f"{_gib(memory.available)} free of {_gib(memory.total)}"
    if memory.available < _SERVICES_MEMORY:
        return Finding(
            "warning", f"{detail}; the services alone take about {_gib(_SERVICES_MEMORY)}", "end other programs"
        )
    return ok(detail)


def check_ray_folder(subject: Subject) -> Finding:
    """Whether Ray's temporary folder is private, has room, and holds no sessions of Rays that have ended."""
    folder = subject.home.ray_temp
    if folder.parent.exists() or folder.parent.is_symlink():
        refuse_open(folder.parent)
    disk = psutil.disk_usage(str(existing(folder)))
    if disk.percent > 100 * _FULL:
        raise CheckFailed(
            f"the disk of {folder} is {disk.percent:g}% full; above {_FULL:.0%} Ray stores no objects there",
            "free space, or set TMPDIR to a folder on another disk",
        )
    sessions = [] if cluster.running(subject.home) else [path for path in folder.glob("session_2*") if path.is_dir()]
    if sessions:
        remedy = "rm -r " + (str(sessions[0]) if len(sessions) == 1 else f"{folder}/session_2*")
        return Finding("warning", f"{folder} has {len(sessions)} session(s) of Rays that have ended", remedy)
    return ok(f"{folder}, {_gib(disk.free)} free")


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
