"""What the Prefect UI shows of a run: artifacts with progress, results, main figures and a link to the dashboard; tags.

A key begins with the run, then has the iteration and the stage, so that a search for RUN-ITERATION lists an iteration's
artifacts. A stage that is not run again leaves its artifacts as they are. A background thread writes them to Prefect's
server, in order, while the run goes on. An artifact that cannot be written, for whatever reason, is lost, with a
warning in the run's log: all that artifacts show is on the dashboard too, and nothing that only shows may end a run.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from hashlib import sha256
from typing import Any, cast
from urllib.parse import quote
from uuid import UUID

import httpx
from prefect.artifacts import (
    Artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import Artifact as StoredArtifact
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run

from core.logs import only_shown
from core.statistics.estimates import Estimate
from core.types import StageKey
from orchestrator.reporting.results import StageResult, as_markdown
from services.evaluations.figures import EvaluationFigures
from services.prefect.flow_runs import tags_of
from services.prefect.server import is_away
from services.run_report.measures import measure
from services.run_report.summary import summary_rows
from storage.session import Store

_thread = ThreadPoolExecutor(1, "artifacts")
_pending: deque[Future[Any]] = deque()
_EVALUATION, _RECHECK = _NO_RUNS = ("evaluation", "recheck")  # a run may have such a name too


@contextmanager
def flushed() -> Iterator[None]:
    """Wait at the end of the block until all artifacts are written."""
    try:
        yield
    except BaseException:
        wait(_pending)  # Prefect's client cannot be used once the process has begun to exit
        _pending.clear()
        raise
    while _pending:
        _settle(_pending.popleft())


def tagged(run: str, preset: str | None, iteration: int | None = None) -> None:
    """Add tags to the current flow run, by which Prefect's lists can be filtered. Its tasks get none."""
    if (key := flow_run.id) is not None:
        tags = [*flow_run.tags, *tags_of(run=run, preset=preset, iteration=iteration)]

        def write() -> None:
            with get_client(sync_client=True) as client:
                client.update_flow_run(UUID(key), tags=[*dict.fromkeys(tags)])

        _write(write)


class StageProgress:
    """The progress of one stage, in percent. When the stage is done, its result takes the place of it."""

    def __init__(self, key: StageKey) -> None:
        name = _key(key.run, key.iteration, key.stage, "progress")
        description = f"{key.run}, iteration {key.iteration}: progress of {key.stage}"
        self._id: UUID | None = None  # None: it was not made, or a person has deleted it

        def create() -> None:
            self._id = cast(UUID, create_progress_artifact(progress=0.0, key=name, description=description))

        _write(create)

    def update(self, percent: float) -> None:
        def write() -> None:
            if self._id is None:
                return
            try:
                update_progress_artifact(self._id, progress=percent)
            except (ObjectNotFound, httpx.HTTPStatusError) as error:
                if not (isinstance(error, httpx.HTTPStatusError) and is_away(error)):
                    self._id = None  # the same would be said every few seconds
                raise

        _write(write)

    def remove(self) -> None:
        def delete() -> None:
            if self._id is not None:
                with get_client(sync_client=True) as client, suppress(ObjectNotFound):  # a person may have deleted it
                    client.delete_artifact(self._id)

        _write(delete)


def stage_result(key: StageKey, result: StageResult, pages_url: str) -> None:
    """Show the result of a stage, with a link to its page on the dashboard if the dashboard's address is known."""
    page = run_page(pages_url, key.run, key.iteration)
    link = f"[{page}]({page})" if page else ""
    title = f"### {as_markdown(key.run)}, iteration {key.iteration}: {key.stage}"
    text = "\n\n".join(filter(None, (title, result.table, link)))
    name = _key(key.run, key.iteration, key.stage)
    description = f"{key.run}, iteration {key.iteration}: result of {key.stage}"

    def write() -> None:
        if not _is_newest(name, text):
            create_markdown_artifact(text, key=name, description=description)

    _write(write)


def dashboard_link(run: str, pages_url: str) -> None:
    """Link to the run's page on the dashboard, if the dashboard's address is known."""
    if page := run_page(pages_url, run):
        text, key = f"Run {run} on the dashboard", _key(run, "dashboard")
        _write(lambda: create_link_artifact(page, link_text=text, key=key, description=text))


def run_page(pages_url: str, run: str, iteration: int = 0) -> str:
    """The address of an iteration's page on the dashboard, or of the run's for the stages before the first iteration;
    empty if the dashboard's address is not known."""
    page = f"{pages_url}/runs/{quote(run)}"
    return pages_url and (f"{page}/{iteration}" if iteration else page)


def evaluated(figures: Sequence[EvaluationFigures]) -> None:
    """Show the figures of an evaluation as a table, one row for each benchmark."""
    rows = [
        {
            "benchmark": of_benchmark.evaluation.benchmark,
            "questions": of_benchmark.questions,
            "samples": of_benchmark.samples,
            **{name: _with_interval(getattr(of_benchmark, name)) for name in ("pass_at_1", "greedy", "majority")},
        }
        for of_benchmark in figures
    ]
    model = figures[0].evaluation.model if figures else ""
    _write(
        lambda: create_table_artifact(
            rows, key=_key(_EVALUATION, model), description=as_markdown(f"evaluation of {model}")
        )
    )


def rechecked(figures: Sequence[EvaluationFigures], judge: str) -> None:
    """Show what a judge says about evaluations as a table: the accuracy by the grader, with the judge, and by it alone,
    where that is known."""
    rows = [
        {"benchmark": of_benchmark.evaluation.benchmark, "right by": who, "pass@1": _with_interval(recount.pass_at_1)}
        | {"greedy": _with_interval(recount.greedy)}
        for of_benchmark in figures
        for recheck in of_benchmark.rechecks
        if recheck.judge == judge
        for who, recount in (
            ("the grader", of_benchmark),
            (f"the grader or {judge}", recheck.failures_rechecked),
            (f"{judge} alone", recheck.judge_alone),
        )
        if recount is not None
    ]
    _write(
        lambda: create_table_artifact(rows, key=_key(_RECHECK, judge), description=as_markdown(f"rechecked by {judge}"))
    )


def _with_interval(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.1%} ({estimate.lo:.1%} to {estimate.hi:.1%})"


def figures(store: Store, run: str) -> None:
    """Show the main figures so far as a table, one row for each iteration."""
    key = _key(run, "figures")

    def write() -> None:
        rows = summary_rows(measure(store, run))
        if not _is_newest(key, json.dumps(rows)):
            create_table_artifact(rows, key=key, description=f"{run}: main figures by iteration, 95% intervals")

    _write(write)


def _is_newest(key: str, data: str) -> bool:
    """Whether the newest artifact of this key has this content already, such as after a run was continued."""
    newest = cast(StoredArtifact | None, Artifact.get(key))
    return newest is not None and newest.data == data


def _write(write: Callable[[], Any]) -> Future[Any]:
    """Have the thread call `write` in this context, from which Prefect knows the task that the artifact belongs to."""
    while _pending and _pending[0].done():
        _settle(_pending.popleft())
    _pending.append(_thread.submit(copy_context().run, write))
    return _pending[-1]


def _settle(writing: Future[Any]) -> None:
    with only_shown("everything of this run in Prefect"):
        writing.result()


def _key(name: str, *parts: str | int) -> str:
    """The key of an artifact of the run `name`, or of a model or a judge for a `name` in `_NO_RUNS`.

    Prefect allows only lowercase ASCII letters, digits and dashes in a key, so several names would have the same one.
    A key that does not show a name as it is therefore ends with eight digits of a hash, as do all that are not a run's.
    """
    text = "-".join(map(str, (name, *parts)))
    key = "".join(char if char.isascii() and char.isalnum() else "-" for char in text.lower())
    is_exact = name not in _NO_RUNS and key.startswith(f"{name}-")
    return key if is_exact else f"{key}-{sha256(json.dumps([name, *parts]).encode()).hexdigest()[:8]}"
