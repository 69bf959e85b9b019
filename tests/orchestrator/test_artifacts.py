from __future__ import annotations

import json
import re
from threading import Event
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.exceptions import ObjectNotFound
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)

from core.types import Stage, StageKey
from orchestrator.reporting import artifacts
from orchestrator.reporting.results import Figure, StageResult
from storage.queries.runs import RUN_NAME
from storage.session import Store
from tests.orchestrator.small_run import small_run

RESULT = StageResult((Figure("pass@1", "57.4%", "[55.0, 59.8]", 1020),))


def test_artifacts_are_written_in_order_while_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, calls = Event(), list[tuple[str, Any]]()

    def create(*, progress: float, key: str, description: str) -> str:
        assert may_write.wait(60)
        calls.append((key, progress))
        return "its id"

    monkeypatch.setattr(artifacts, "create_progress_artifact", create)
    monkeypatch.setattr(artifacts, "update_progress_artifact", lambda id_, *, progress: calls.append((id_, progress)))
    monkeypatch.setattr(
        artifacts, "create_markdown_artifact", lambda text, *, key, description: calls.append((key, text))
    )
    monkeypatch.setattr(artifacts, "_is_newest", lambda *_: False)
    with artifacts.flushed():
        progress = artifacts.StageProgress(StageKey("exp-v2", 2, "evaluate"))
        progress.update(50.0)
        artifacts.stage_result(StageKey("exp-v2", 2, "evaluate"), RESULT, "http://127.0.0.1:8080")
        assert calls == []
        may_write.set()
    page = "http://127.0.0.1:8080/runs/exp-v2/2"
    assert calls == [
        ("exp-v2-2-evaluate-progress", 0.0),
        ("its id", 50.0),
        ("exp-v2-2-evaluate", f"### exp-v2, iteration 2: evaluate\n\n{RESULT.table}\n\n[{page}]({page})"),
    ]


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), ObjectNotFound(Exception()), RuntimeError("no version"), OSError(28, "full")]
)
def test_no_error_in_writing_ends_a_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    for name in ("create_markdown_artifact", "create_progress_artifact", "_is_newest"):
        monkeypatch.setattr(artifacts, name, refuse)
    with artifacts.flushed():
        progress = artifacts.StageProgress(StageKey("run", 1, "evaluate"))
        progress.update(50.0)
        progress.remove()
        artifacts.stage_result(StageKey("run", 1, "evaluate"), RESULT, "")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_an_artifact_that_a_person_has_deleted_does_not_end_the_run(
    prefect: SyncPrefectClient, caplog: pytest.LogCaptureFixture
) -> None:
    key = "deleted-1-evaluate-progress"
    with artifacts.flushed():
        progress = artifacts.StageProgress(StageKey("deleted", 1, "evaluate"))
    filters = {"artifact_filter": ArtifactFilter(key=ArtifactFilterKey(any_=[key]))}
    (shown,) = prefect.read_artifacts(**filters)
    prefect.delete_artifact(shown.id)
    with artifacts.flushed():
        for percent in (10.0, 20.0, 30.0):
            progress.update(percent)
        progress.remove()
        artifacts.stage_result(StageKey("deleted", 1, "evaluate"), RESULT, "")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    filters = {"artifact_filter": ArtifactFilter(key=ArtifactFilterKey(any_=[key, "deleted-1-evaluate"]))}
    assert [row.key for row in prefect.read_artifacts(**filters)] == ["deleted-1-evaluate"]


@pytest.mark.parametrize(
    "settings",
    [
        {PREFECT_API_AUTH_STRING: "coevo:another"},
        {PREFECT_API_URL: "http://127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0},
    ],
    ids=["a refused password", "no Prefect"],
)
@pytest.mark.usefixtures("prefect")
def test_a_run_goes_on_while_prefect_refuses_or_is_away_and_says_what_is_lost(
    settings: dict[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with artifacts.flushed():
        progress = artifacts.StageProgress(StageKey("refused", 1, "evaluate"))
    with temporary_settings(settings), artifacts.flushed():
        progress.update(50.0)
        progress.remove()
        artifacts.stage_result(StageKey("refused", 1, "evaluate"), RESULT, "")
        artifacts.dashboard_link("refused", "http://127.0.0.1:8080")
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert len(caplog.records) >= 2  # the progress, and the result


def test_pages_are_linked_only_where_the_dashboard_s_address_is_known() -> None:
    url = "http://127.0.0.1:8080"
    assert artifacts.run_page(url, "demo") == f"{url}/runs/demo"
    assert artifacts.run_page(url, "demo", 2) == f"{url}/runs/demo/2"
    assert artifacts.run_page("", "demo", 2) == ""


ENDS = [(t, stage, *rest) for t in (1, 12) for stage in get_args(Stage) for rest in ((), ("progress",))]
OF_RUNS = st.tuples(st.from_regex(RUN_NAME, fullmatch=True), st.sampled_from([*ENDS, ("dashboard",), ("figures",)]))
OF_MODELS = st.tuples(st.sampled_from(["evaluation", "recheck"]), st.tuples(st.text()))
ALIKE: list[tuple[str, tuple[Any, ...]]] = [(run, ("figures",)) for run in ("a.b", "a-b", "A-B", "a_b", "a-b.")]
ALIKE += [("evaluation", (1, "evaluate")), ("evaluation", ("1-evaluate",)), ("Evaluation", (1, "evaluate"))]
ALIKE += [("evaluation", (model,)) for model in ("gpt/4", "gpt-4", "GPT-4", "gpt 4", "ü", "ä")]


@given(st.lists(st.sampled_from(ALIKE) | OF_RUNS | OF_MODELS, unique=True))
@example(ALIKE)
def test_artifacts_of_different_names_have_different_keys(named: list[tuple[str, tuple[Any, ...]]]) -> None:
    keys = [artifacts._key(name, *parts) for name, parts in named]
    assert len(set(keys)) == len(named)
    assert all(re.fullmatch("[a-z0-9-]+", key) for key in keys)  # what Prefect allows


def test_runs_whose_names_look_alike_in_a_key_keep_their_own_artifacts(prefect: SyncPrefectClient) -> None:
    with artifacts.flushed():
        for run in ("a.b", "a-b", "A-B"):
            artifacts.stage_result(StageKey(run, 1, "evaluate"), RESULT, "")
    latest = prefect._client.post("/artifacts/latest/filter", json={}).json()
    described = {artifact["description"] for artifact in latest}
    assert {f"{run}, iteration 1: result of evaluate" for run in ("a.b", "a-b", "A-B")} <= described


def test_a_run_has_one_artifact_of_its_figures_until_they_change(prefect: SyncPrefectClient, sqlite: Store) -> None:
    small_run(sqlite)
    filters = {"artifact_filter": ArtifactFilter(key=ArtifactFilterKey(any_=["small-figures"]))}
    for _ in range(2):
        with artifacts.flushed():
            artifacts.figures(sqlite, "small")
    (shown,) = prefect.read_artifacts(**filters)
    assert [row["iteration"] for row in json.loads(str(shown.data))] == ["base", "1"]
