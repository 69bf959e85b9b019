"""Prefect's hooks after a flow run was cancelled or its process died, and runs that wait for a person who does not
answer."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import anyio
import httpx
import pytest
from prefect import Flow, flow
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import FlowPauseTimeout, Pause
from prefect.input.run_input import keyset_from_paused_state
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Crashed, Running

from core.errors import CoevoError
from core.processes import identity as processes
from core.types import Flow as FlowName
from orchestrator import flows
from orchestrator.check.start import RunError
from orchestrator.evaluation.flows import recheck
from orchestrator.flows import co_evolve, iteration
from orchestrator.installation.home import Home, home
from orchestrator.installation.ports import free_port
from orchestrator.ledger import owner, refuse_held, run_held
from orchestrator.plan import plan
from orchestrator.reporting.flow_process import retry_connecting
from orchestrator.runs import prepare, status_kept, status_of, stored_config
from services.evaluations.figures import figures_of
from services.inference.client import InferenceError
from services.prefect.flow_runs import DEPLOYMENTS, EXISTING
from storage import queries
from storage.errors import LeaseLost
from storage.files.run_logs import last_events
from storage.rows import RunStatus
from storage.session import Store
from tests.fake_judge import comparing_reply, judge_with
from tests.fake_service import fake_service
from tests.live import wait_until
from tests.services.evaluation_examples import store_answers
from tests.synthetic_run import create, finish, run_of


@pytest.fixture
def store(home: Home, sqlite: Store) -> Store:
    """A store with a run whose status is running."""
    with sqlite.write() as session:
        create(session, "r")
        queries.runs.set_run_status(session, "r", "running")
    return sqlite


def test_a_flow_takes_all_settings_that_the_command_line_takes() -> None:
    overrides = {
        "dataset.band": [0.3, 0.8],
        "dataset.refused_texts": ["box"],
        "challenger.trained": False,
        "labelled": None,
        "trainer": {"type": "local"},
    }
    assert co_evolve.validate_parameters({"run": "r", "overrides": overrides})["overrides"] == overrides


@pytest.mark.parametrize(
    ("preset", "flow", "other"), [("micro", "co_evolve", "self_train"), ("demo", "self_train", "co_evolve")]
)
def test_a_preset_of_the_other_flow_is_refused_with_the_deployment_to_take_instead(
    store: Store, tmp_path: Path, preset: str, flow: FlowName, other: FlowName
) -> None:
    with pytest.raises(RunError, match=rf"^flow: expected {other}, .*, got {flow}; in Prefect,") as caught:
        prepare(Home(tmp_path), store, "new", preset, 0, {}, flow)
    deployment = str(caught.value).rpartition(" ")[2]
    assert deployment == getattr(flows, other).name == DEPLOYMENTS[other]


@pytest.mark.parametrize(
    ("refused", "tags"),
    [
        (lambda: co_evolve("new", "demo", overrides={"seed": "x"}), {"run:new", "preset:demo"}),
        (lambda: co_evolve("r", EXISTING, overrides={"seed": 1}), {"run:r", "preset:demo"}),
        (lambda: iteration("new", 2), {"run:new", "iteration:2"}),
    ],
)
def test_a_flow_run_that_is_refused_has_its_tags(
    store: Store, prefect: SyncPrefectClient, refused: Callable[[], object], tags: set[str]
) -> None:
    with pytest.raises(CoevoError):
        refused()
    [newest] = prefect.read_flow_runs(limit=1, sort=FlowRunSort.START_TIME_DESC)
    assert {*newest.tags} == tags


def test_a_new_client_of_a_flow_repeats_a_request_when_it_cannot_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's own clients do not, before they have been connected once."""
    for kind in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
        monkeypatch.setattr(kind, "_has_connected", None, raising=False)  # undone after the test
    pauses: list[float] = []

    async def no_pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(anyio, "sleep", no_pause)
    monkeypatch.setattr(time, "sleep", pauses.append)
    retry_connecting()
    url = f"http://127.0.0.1:{free_port()}"

    async def ask() -> None:
        async with PrefectHttpxAsyncClient() as client:
            await client.get(url)

    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 2}):
        with pytest.raises(httpx.ConnectError):
            asyncio.run(ask())
        assert len(pauses) == 2
        with PrefectHttpxSyncClient() as client, pytest.raises(httpx.ConnectError):
            client.get(url)
    assert len(pauses) == 4


def _status_after_a_cancellation(store: Store) -> str:
    [hook] = co_evolve.on_cancellation_hooks
    hook(co_evolve, FlowRun(flow_id=uuid4(), parameters={"run": "r"}), Cancelled())
    return status_of(store, "r")


@pytest.mark.usefixtures("prefect")
def test_a_cancelled_flow_run_marks_its_run_unless_another_process_works_on_that(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = f"{owner().split(':')[0]}:{other.pid}:{processes.started(other.pid):.0f}"
        with store.write() as session:
            queries.run_leases.claim_run(session, run="r", owner=name, lease_seconds=600)
        # For instance a flow run that only waited is cancelled while this other process works on the run.
        assert _status_after_a_cancellation(store) == "running"
        other.kill()
        other.wait()
        assert _status_after_a_cancellation(store) == "cancelled"
    refuse_held(store, "r")  # no process works on the run any more


@pytest.mark.usefixtures("prefect")
def test_a_cancellation_says_in_prefect_s_log_how_the_run_is_continued(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "prefect.flow_runs")
    logging.getLogger("prefect.flow_runs").addHandler(caplog.handler)
    assert _status_after_a_cancellation(store) == "cancelled"
    logging.getLogger("prefect.flow_runs").removeHandler(caplog.handler)
    assert {*caplog.messages} == {
        "run r is cancelled; Retry here or `coevo resume r` continues it; finished stages stay"
    }
    # Prefect logs "Running hook NAME in response to entering state 'Cancelled'".
    assert [hook.__name__ for hook in co_evolve.on_cancellation_hooks] == ["store that the run is cancelled"]


@pytest.mark.usefixtures("prefect")
@pytest.mark.parametrize(
    ("before", "ended", "after"),
    [
        ("running", False, "failed"),
        ("paused", False, "failed"),
        ("cancelled", False, "cancelled"),
        ("running", True, "done"),  # for instance if Prefect dies before the flow can report its end
    ],
)
def test_a_crash_fails_a_run_unless_it_was_stopped_with_ctrl_c_or_was_done(
    store: Store, before: RunStatus, ended: bool, after: RunStatus
) -> None:
    """Prefect also treats Ctrl-C as a crash; by then the flow has marked its run as cancelled."""
    with store.write() as session:
        queries.runs.set_run_status(session, "r", before)
        for t, stage in plan(stored_config(store, "r")) if ended else ():
            finish(session, "r", t, stage, {}, 1)
    co_evolve.on_crashed_hooks[0](co_evolve, FlowRun(flow_id=uuid4(), parameters={"run": "r"}), Crashed())
    assert status_of(store, "r") == after


def test_a_run_whose_flow_run_is_suspended_is_not_cancelled(store: Store) -> None:
    of_r = run_of(store, "r")
    with pytest.raises(Pause), run_held(store, "r"), flows._suspension_noted(of_r), status_kept(of_r):
        raise Pause
    assert status_of(store, "r") == "paused"


@pytest.fixture
def asking_flow(store: Store, monkeypatch: pytest.MonkeyPatch) -> Flow[[], str]:
    """A flow that asks a person, as after an iteration whose guard pauses the run; it polls often."""
    with store.write() as session:
        finish(session, "r", 1, "check_health", {"action": "pause", "back_to": None, "warnings": ["a warning"]}, 1)
    monkeypatch.setattr(flows, "_POLL_S", 0.05)

    @flow
    def ask() -> str:
        of_r = run_of(store, "r", home=home().path)
        with run_held(store, "r"), status_kept(of_r):
            return flows._action_after(of_r, 1)

    return ask


def _has_failed_and_will_ask_again(store: Store) -> bool:
    with store.read() as session:
        stage = queries.ledger.find_stage(session, run="r", iteration=1, stage="ask_a_person")
    return status_of(store, "r") == "failed" and stage is None


@pytest.mark.usefixtures("prefect")
def test_a_pause_that_nobody_answers_fails_the_run(
    store: Store, asking_flow: Flow[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would fail after a week; in this test it fails after a fifth of a second."""
    monkeypatch.setattr(flows, "_PATIENCE_S", 0.2)
    with pytest.raises(FlowPauseTimeout):
        asking_flow()
    [event] = last_events(home().run_logs, "r", 5)
    assert event.message.startswith("paused after iteration 1 until somebody decides, in the Prefect UI")
    assert event.message.endswith("`coevo runs decide r`: a warning")
    assert _has_failed_and_will_ask_again(store)


@pytest.mark.usefixtures("prefect")
def test_an_answer_that_comes_after_another_process_has_ended_the_run_changes_nothing(
    store: Store, asking_flow: Flow[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(**_: object) -> None:
        with store.write() as session:
            queries.run_leases.release_run(session, run="r", owner=owner())
            queries.runs.set_run_status(session, "r", "done")

    monkeypatch.setattr(flows, "pause_flow_run", answered)
    with pytest.raises(LeaseLost, match="run r: "):
        asking_flow()
    assert status_of(store, "r") == "done"


def test_a_run_that_is_resumed_without_a_decision_fails(
    store: Store, asking_flow: Flow[[], str], prefect: SyncPrefectClient
) -> None:
    """The server refuses to resume it without the form, so the test sets its state by force."""

    def paused() -> list[FlowRun]:
        is_paused = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PAUSED]))
        return prefect.read_flow_runs(flow_run_filter=FlowRunFilter(state=is_paused))

    def resume() -> None:
        wait_until(lambda: len(paused()) == 1, "the flow to pause")
        [waiting] = paused()
        assert waiting.state is not None
        shown = keyset_from_paused_state(waiting.state)["description"]
        assert "Run r is paused after iteration 1." in prefect.read_flow_run_input(waiting.id, shown)
        assert prefect.resume_flow_run(waiting.id).status == SetStateStatus.REJECT
        prefect.set_flow_run_state(waiting.id, Running(), force=True)

    with ThreadPoolExecutor(1) as thread:
        resumed = thread.submit(resume)
        with pytest.raises(RunError, match=r"run r: .*`coevo resume r`"):
            asking_flow()
        resumed.result()
    assert _has_failed_and_will_ask_again(store)


def test_evaluations_are_rechecked_by_a_judge_whose_key_is_no_parameter(
    store: Store, prefect: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = store_answers(store, ["7747", "8588", "99--"], "751")  # the true answers are 7, 5 and 3
    with fake_service(judge_with(comparing_reply)) as (service, requests):
        parameters = {"evaluations": [key], "url": service.url, "model": "GPT-4o", "key_variable": "JUDGE_KEY"}
        with pytest.raises(InferenceError, match="key_variable: JUDGE_KEY "):
            recheck(**parameters)
        monkeypatch.setenv("JUDGE_KEY", "secret")
        assert recheck(**parameters) == [key]
        assert {authorization for *_, authorization in requests} == {"Bearer secret"}
        asked = len(requests)
        recheck(**parameters)
        assert len(requests) == asked  # all answers have a verdict
    named = FlowFilter(name=FlowFilterName(any_=["recheck"]))
    [_, *rechecks] = prefect.read_flow_runs(flow_filter=named, sort=FlowRunSort.START_TIME_ASC)
    assert all("secret" not in str(flow_run.parameters) for flow_run in rechecks)
    of_first = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[rechecks[0].id]))
    [artifact] = prefect.read_artifacts(artifact_filter=of_first)
    # The grader and the judge agree: of four samples each, 3, 1 and 0 are right.
    shown = {row["right by"]: row["pass@1"] for row in json.loads(str(artifact.data))}
    graders = ("the grader", "the grader or judge_gpt_4o_equivalence", "judge_gpt_4o_equivalence alone")
    assert {who: text.partition(" ")[0] for who, text in shown.items()} == dict.fromkeys(graders, "33.3%")
    with store.read() as session:
        figures = figures_of(session, key)
    assert figures is not None
    assert [recheck.judge for recheck in figures.rechecks] == ["judge_gpt_4o_equivalence"]
