"""What `run_stage` adds to a stage: its figures are stored at once, its line is logged, Prefect shows its result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import ray
from prefect import flow, tags
from prefect.client.orchestration import SyncPrefectClient
from prefect.runtime import flow_run as current

from core.errors import CoevoError
from core.settings.trackers import Trackers
from orchestrator import flows
from orchestrator.installation import reachable
from orchestrator.installation.home import Home, NotUp, Services
from orchestrator.installation.ports import free_port
from orchestrator.ledger import LastWrite
from orchestrator.reporting import artifacts
from orchestrator.run import Run
from orchestrator.stages.by_name import STAGE_FUNCTIONS
from orchestrator.stages.context import Context
from orchestrator.trackers.tracked import tracked
from storage import queries
from storage.files.run_logs import last_events
from storage.session import open_store
from tests.live import wait_until
from tests.logging_process import console
from tests.synthetic_run import add_evaluations, create, held_out, run_of
from tests.tracked_run import fake_wandb


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a run that has its base model. Ray is taken for started, since these stages do not need it."""
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    home.save_services(Services("", "", "", "", "", {}, api_url="http://127.0.0.1:8080"))
    with open_store(home.database, create=True).write() as session:
        create(session, "demo")
    return home


def opened(home: Home) -> Run:
    return run_of(open_store(home.database), "demo", home=home.path, services=home.services())


def evaluate_base(context: Context) -> LastWrite:
    """A stage that stores what a model of twelve questions would have answered."""
    with context.store.write() as session:
        items = held_out([4] * 12, [1] * 12, [0] * 12)
        add_evaluations(session, checkpoint=f"{context.run}/base/0", benchmark="micro", items=items)
    return lambda _session: {"checkpoint": f"{context.run}/base/0", "items": 12}


def fail(context: Context) -> LastWrite:
    raise CoevoError("dataset.band: no question was kept")


def test_a_stage_fails_if_ray_has_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray.init` waits without end for a Ray that is away."""
    url = f"http://127.0.0.1:{free_port()}"
    home.save_services(Services("127.0.0.1:1", url, "", "", "", {}))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(reachable, "_RAY_IS_BACK_S", 0.1)
    with pytest.raises(NotUp, match=f"^Ray: {url}"):
        flows.run_stage(opened(home), 0, "evaluate")


def test_the_base_model_s_accuracy_is_known_after_the_first_evaluation(
    home: Home, prefect: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STAGE_FUNCTIONS, "evaluate", evaluate_base)

    @flow
    def first_stage() -> None:
        with artifacts.flushed():
            flows._stage_task(opened(home), 0, "evaluate")

    with console("flow"):
        first_stage()
        first_stage()  # as a run does that is continued
    with open_store(home.database).read() as session:
        [point] = queries.series.series_of(session, "demo", "held_out")
    assert (point.iteration, point.value, point.n) == (0, 0.5, 12)
    figures = "micro pass@1 50.0% [44.3, 55.7], greedy 100.0% [71.2, 100.0], majority 0.0% [0.0, 28.8] (n = 12)"
    assert f"evaluate 0: {figures}; " in capsys.readouterr().err
    event, again = last_events(home.run_logs, "demo", 5)
    assert event.message.startswith(f"evaluate 0: {figures}; ")
    assert again.message == f"evaluate 0: {figures}; it was done before"
    # The second time makes no artifact, and the progress is gone.
    [artifact] = [artifact for artifact in prefect.read_artifacts() if str(artifact.key).startswith("demo-0-evaluate")]
    assert (artifact.key, artifact.type) == ("demo-0-evaluate", "markdown")
    assert artifact.description == "demo, iteration 0: result of evaluate"
    assert "| micro pass@1 | 50.0% | [44.3, 55.7] | 12 |" in str(artifact.data)
    assert str(artifact.data).endswith("[http://127.0.0.1:8080/runs/demo](http://127.0.0.1:8080/runs/demo)")


@pytest.mark.usefixtures("prefect")
def test_the_run_s_trackers_are_told_of_a_stage_that_has_ended(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGE_FUNCTIONS, "evaluate", evaluate_base)
    reached = fake_wandb(monkeypatch, tmp_path, "raises at each call")
    run = opened(home)
    run = replace(run, config=run.config.model_copy(update={"trackers": Trackers(to=("wandb",))}))

    @flow
    def first_stage() -> None:
        with tracked(run):
            wait_until((home.trackers / "demo" / "wandb").exists, "the tracker's start")
            flows.run_stage(run, 0, "evaluate")
            wait_until(reached.exists, "the first point")

    first_stage()


@pytest.mark.usefixtures("prefect")
def test_a_failed_stage_leaves_its_error_in_the_log(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAGE_FUNCTIONS, "evaluate", fail)

    @flow
    def first_stage() -> None:
        flows.run_stage(opened(home), 0, "evaluate")

    with pytest.raises(CoevoError, match="no question was kept"):
        first_stage()
    [event] = last_events(home.run_logs, "demo", 5)
    assert (event.level, event.stage) == ("ERROR", "evaluate")
    assert event.message.endswith("CoevoError: dataset.band: no question was kept")


def test_a_flow_run_has_tags_of_its_run_its_preset_and_its_iteration_beside_its_own(
    prefect: SyncPrefectClient,
) -> None:
    @flow
    def tagged() -> str:
        with artifacts.flushed():
            artifacts.tagged("demo", "micro", 2)
        return str(current.id)

    with tags("mine"):
        flow_run = prefect.read_flow_run(UUID(tagged()))
    assert set(flow_run.tags) == {"mine", "run:demo", "preset:micro", "iteration:2"}
