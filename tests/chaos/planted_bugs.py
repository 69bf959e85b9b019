"""Bugs that lose or change something only when a process dies at the wrong moment, or is suspended there.

Each function plants one in this process and its forks, and returns that moment. A campaign must see it.
"""

from __future__ import annotations

import mmap
import os
import shutil
import signal
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.orm import Session

from core.processes.faultpoints import faultpoint
from core.seeds import seed_for
from core.types import Rollout
from orchestrator.stages.context import Context
from storage import queries
from storage.files import checkpoints
from storage.queries import evaluations
from storage.rows import RunDetail
from tests.chaos.trace import Strike

_PATCH = pytest.MonkeyPatch()


def publish_in_place() -> Strike:
    """A checkpoint is copied to where it belongs, file by file."""

    def publish(source: Path, _root: Path, final: Path, _key: str) -> str:
        final.mkdir(parents=True)
        files = checkpoints.manifest(source)
        (final / checkpoints.MANIFEST).write_bytes(checkpoints._as_json(files))
        for name in files:
            faultpoint("checkpoint file copied")
            shutil.copyfile(source / name, final / name)
        return checkpoints.digest(files)

    _PATCH.setattr(checkpoints, "_publish", publish)
    return Strike(1, "checkpoint file copied")


def key_without_meaning() -> Strike:
    """An evaluation that goes on after a crash gets another key."""
    _PATCH.setattr(evaluations, "evaluation_id", lambda *_: uuid4().hex[:16])
    return Strike(1, "batch stored")


def seed_of_the_process() -> Strike:
    def seed(context: Context, *key: str | int) -> int:
        return seed_for(os.getpid(), context.iteration_key, *key)

    _PATCH.setattr(Context, "seed", seed)
    return Strike(1, "iteration ended")


def write_without_a_fence() -> Strike:
    """A process that has lost its stage goes on writing."""

    def write(context: Context) -> AbstractContextManager[Session]:
        return context.store.write()

    _PATCH.setattr(Context, "write", write)
    return Strike(3, "batch begun", signal=signal.SIGSTOP)  # the first of `generate_questions`, after an evaluation


def begun_once() -> Strike:
    """A process that dies while it creates the run leaves a mark, and all later ones fail at it."""
    create, mark = queries.runs.create_run, mmap.mmap(-1, 1)  # which forks share

    def create_with_mark(session: Session, **run: Any) -> RunDetail:
        if mark[0]:
            raise FileExistsError("somebody creates the run")
        mark[0] = 1
        faultpoint("training begun")  # which no other part of the scripted loop comes to
        created = create(session, **run)
        mark[0] = 0
        return created

    _PATCH.setattr(queries.runs, "create_run", create_with_mark)
    return Strike(1, "training begun")


def done_before_written() -> Strike:
    """The votes of a batch are stored after the labels that were made of them."""
    add, done, pending = queries.questions.add_rollouts, Context.batch_done, list[Rollout]()

    def add_later(_session: Session, rollouts: Iterable[Rollout]) -> None:
        pending.extend(rollouts)

    def write_and_be_done(context: Context, count: int, total: int, note: str) -> None:
        if pending:
            faultpoint("training begun")  # which no other part of the scripted loop comes to
        with context.write() as session:
            add(session, pending)
        pending.clear()
        done(context, count, total, note)

    _PATCH.setattr(queries.questions, "add_rollouts", add_later)
    _PATCH.setattr(Context, "batch_done", write_and_be_done)
    return Strike(1, "training begun")
