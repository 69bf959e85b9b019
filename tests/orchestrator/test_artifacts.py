from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from orchestrator import artifacts
from orchestrator.stages.results import Figure, StageResult

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
    with artifacts.written():
        progress = artifacts.StageProgress("exp.v2_B", 2, "evaluate")
        progress.update(50.0)
        artifacts.stage_result("exp.v2_B", 2, "evaluate", RESULT, "http://127.0.0.1:8080")
        assert calls == []
        may_write.set()
    page = "http://127.0.0.1:8080/runs/exp.v2_B/2"
    assert calls == [
        ("exp-v2-b-2-evaluate-progress", 0.0),
        ("its id", 50.0),
        ("exp-v2-b-2-evaluate", f"### exp.v2_B, iteration 2: evaluate\n\n{RESULT.table}\n\n[{page}]({page})"),
    ]


def test_an_error_in_writing_is_raised_unless_the_run_itself_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(artifacts, "_is_newest", lambda *_: False)
    monkeypatch.setattr(artifacts, "create_markdown_artifact", refuse)

    def run(error: Exception | None) -> None:
        with artifacts.written():
            artifacts.stage_result("run", 1, "evaluate", RESULT, "")
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="a bug"):
        run(None)
    with pytest.raises(ValueError, match="of the run"):
        run(ValueError("of the run"))
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda *_, **__: None)
    run(None)  # the next run does not get the errors of the one before


def test_a_run_goes_on_while_prefect_is_away_and_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}),
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
        artifacts.written(),
    ):
        progress = artifacts.StageProgress("away", 2, "evaluate")
        progress.update(50.0)
        artifacts.stage_result("away", 2, "evaluate", RESULT, "")
    assert caplog.text.count("Prefect does not answer, so it does not show everything of this run") == 3


def test_pages_are_linked_only_where_the_dashboard_s_address_is_known() -> None:
    url = "http://127.0.0.1:8080"
    assert artifacts.run_page(url, "demo") == f"{url}/runs/demo"
    assert artifacts.run_page(url, "demo", 2) == f"{url}/runs/demo/2"
    assert artifacts.run_page("", "demo", 2) == ""
