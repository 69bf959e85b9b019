"""What a run shows in the Prefect UI besides its states: progress, a filter table, results, the curves as a picture.

One thread writes it to Prefect's server, in order, while the run goes on.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from core.types import Stage
from storage.session import Store

_thread = ThreadPoolExecutor(1, "artifacts")
_unwritten: deque[Future[Any]] = deque()


@contextmanager
def written() -> Iterator[None]:
    """The block ends when Prefect has what was made within it. Raises what writing it raised, unless the block has
    raised something itself."""
    try:
        yield
    except BaseException:
        wait(_unwritten)  # Prefect's client cannot be used once the process has begun to end
        _unwritten.clear()
        raise
    while _unwritten:
        _unwritten.popleft().result()


class StageProgress:
    """The progress of one stage, in percent."""

    def __init__(self, run: str, title: str) -> None:
        key, description = _key(run, title), f"{run}: {title}"
        self._artifact = _write(lambda: create_progress_artifact(progress=0.0, key=key, description=description))

    def update(self, percent: float) -> None:
        _write(lambda: update_progress_artifact(cast(UUID, self._artifact.result()), progress=percent))


def stage_result(run: str, iteration: int, stage: Stage, result: Mapping[str, Any]) -> None:
    """What the stage left in the ledger: the filter's counts as a table, all else as a list."""
    key = _key(run, iteration, stage)
    title = f"{run}, iteration {iteration}: {stage}"
    if stage == "label_questions":
        rows = [{"figure": name, "value": value} for name, value in result.items()]
        _write(lambda: create_table_artifact(rows, key=key, description=title))
    else:
        text = "\n".join([f"### {title}", *(f"- {name}: `{value}`" for name, value in result.items())])
        _write(lambda: create_markdown_artifact(text, key=key))


def curves(store: Store, run: str) -> None:
    """Held-out accuracy and label accuracy so far."""
    _write(lambda: _draw_curves(store, run))


def _draw_curves(store: Store, run: str) -> None:
    from orchestrator.report import curves_png  # Matplotlib: more than a second before a run's first stage

    picture = base64.b64encode(curves_png(store, run)).decode()
    key = _key(run, "curves")
    create_image_artifact(f"data:image/png;base64,{picture}", key=key, description=f"{run}: accuracy by iteration")


def _write(write: Callable[[], Any]) -> Future[Any]:
    """In this context, which tells Prefect the task that an artifact belongs to. Raises what an earlier one raised."""
    while _unwritten and _unwritten[0].done():
        _unwritten.popleft().result()
    _unwritten.append(_thread.submit(copy_context().run, write))
    return _unwritten[-1]


def _key(*parts: str | int) -> str:
    """Prefect's artifact keys hold lowercase ASCII letters, digits and dashes."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in " ".join(map(str, parts)).lower())
