"""A run that is started, cancelled and resumed over REST, by the flow runner that `coevo up` started."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from orchestrator.cluster import free_port
from orchestrator.plan import LOOP
from services.api.client import ApiClient
from services.api.prefect import Prefect
from tests.live import COEVO, Live, terminated, wait_until

RUN = "by-post"


@pytest.fixture
def api(live: Live) -> Iterator[ApiClient]:
    """`coevo api`, which finds Prefect by itself."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [COEVO, "api", "--port", url.rpartition(":")[2]]
    with subprocess.Popen(command, env=live.environment, stdout=subprocess.DEVNULL) as process, terminated(process):
        wait_until(lambda: _answers(url), "the API to answer")
        yield ApiClient(url, live.home.api_key)


def test_a_run_is_started_cancelled_and_resumed_by_post(live: Live, api: ApiClient) -> None:
    started = api.create_run(RUN, "demo", overrides=_settings(live))
    assert started.url.startswith(f"{live.services.prefect_url}/runs/flow-run/")
    wait_until(lambda: _now(api) == "train_challenger", "the Challenger's training to begin")
    [run] = [run for run in api.runs() if run.name == RUN]
    assert (run.preset, run.status, run.iterations) == ("demo", "running", 1)

    refused = live.coevo("resume", RUN)  # of a run that somebody works on
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.search(rf"error: run {RUN}: process \d+ on .* works on it; nothing was changed", refused.stderr)
    assert _status(api) == "running"

    assert [ended.flow_run for ended in api.cancel(RUN, "a test")] == [started.flow_run]
    prefect = Prefect(live.services.prefect)
    wait_until(lambda: not any(each.active for each in prefect.flow_runs(RUN)), "Prefect to have ended it")
    wait_until(lambda: _status(api) == "cancelled", "the run to be marked as cancelled")

    environment = {**live.environment, "COEVO_API_URL": api.url, "COEVO_API_KEY": live.home.api_key}
    said = subprocess.run([COEVO, "runs", "resume", RUN], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"run {RUN}: scheduled; {live.services.prefect_url}/runs/flow-run/")
    assert started.flow_run not in said.stdout
    wait_until(lambda: _status(api) not in ("cancelled", "running"), "the run to end", 500)
    assert _status(api) == "done"
    _, first = api.iterations(RUN)
    assert {stage.stage: stage.status for stage in first.stages} == dict.fromkeys(LOOP, "done")
    assert [stage.attempt for stage in first.stages if stage.stage == "train_challenger"] == [2]
    assert (first.questions, first.now) == (300, None)


def _settings(live: Live) -> dict[str, object]:
    """The small run's, on the benchmark that is not in a file: over REST no file can be named."""
    pairs = dict(setting.split("=", 1) for setting in live.small)
    del pairs["evaluation.benchmark"]
    return {name: value if name == "rollout_text" else json.loads(value) for name, value in pairs.items()}


def _now(api: ApiClient) -> str | None:
    """The stage that the run is at; it is in the store once its flow has begun."""
    if RUN not in [run.name for run in api.runs()]:
        return None
    return next((each.now for each in api.iterations(RUN) if each.now), None)


def _status(api: ApiClient) -> str:
    return next(run.status for run in api.runs() if run.name == RUN)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
