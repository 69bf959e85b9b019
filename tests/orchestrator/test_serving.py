"""Which applications run and which checkpoint each holds, for what a stage needs and what runs already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from core.settings.serving import Serving
from core.types import Checkpoint
from orchestrator.installation.ports import free_port
from orchestrator.serving.checkpoints import _user_config, _with_checkpoints
from services.inference import serve
from tests.http_server import Handler, listening

ALL = {
    "challenger": {"name": "challenger", "deployments": [{"name": "A", "num_replicas": 1}]},
    "solver": {"name": "solver", "deployments": [{"name": "A"}, {"name": "B"}]},
    "judge": {"name": "judge"},
}
OLD, NEW, LATER = (Checkpoint(name, "r", "base", 0, 0, f"/{name}", "0" * 64, None) for name in ("old", "new", "later"))


def running(name: str, checkpoint: Checkpoint, **changes: Any) -> dict[str, Any]:
    """Serve's status of a running application that holds a checkpoint."""
    first, *others = ALL[name]["deployments"]
    deployments = [{**first, "user_config": _user_config(checkpoint), **changes}, *others]
    return {"status": "RUNNING", "deployed_app_config": {**ALL[name], "deployments": deployments}}


def held_checkpoints(
    before: dict[str, Any], needed: dict[str, Checkpoint], *, soon: dict[str, Checkpoint], release: bool
) -> Any:
    """Application -> the checkpoint that it will hold, or None if it holds a fixed model."""
    applications = _with_checkpoints(ALL, before, needed, (), Serving(release=release), soon)
    configs = {
        name: app["deployments"][0]["user_config"] if "deployments" in app else None
        for name, app in applications.items()
    }
    return {name: config and config["checkpoint"] for name, config in configs.items()}


@pytest.mark.parametrize(
    ("before", "release", "expected"),
    [
        ({}, False, {"solver": "new", "challenger": "later", "judge": None}),
        ({"challenger": running("challenger", OLD)}, False, {"solver": "new", "challenger": "old", "judge": None}),
        (
            {"challenger": running("challenger", OLD, num_replicas=2)},
            False,
            {"solver": "new", "challenger": "later", "judge": None},
        ),
        ({}, True, {"solver": "new"}),
        ({"challenger": running("challenger", OLD)}, True, {"solver": "new"}),
    ],
    ids=["nothing runs", "another keeps its own", "another file's", "only what is needed", "another is stopped"],
)
def test_applications_of_later_stages_are_started_too_unless_unused_ones_are_stopped(
    before: dict[str, Any], release: bool, expected: dict[str, str | None]
) -> None:
    assert held_checkpoints(before, {"solver": NEW}, soon={"challenger": LATER}, release=release) == expected


def test_an_application_that_no_stage_needs_is_not_started_without_a_checkpoint() -> None:
    assert held_checkpoints({}, {"solver": NEW}, soon={}, release=False) == {"solver": "new", "judge": None}
    other = {"challenger": running("challenger", OLD, num_replicas=2)}
    assert held_checkpoints(other, {"solver": NEW}, soon={}, release=False) == {"solver": "new", "judge": None}


def test_the_checkpoint_is_given_to_the_first_deployment() -> None:
    applications = _with_checkpoints(ALL, {}, {"solver": NEW}, (), Serving(), {})
    assert applications["solver"]["deployments"] == [{"name": "A", "user_config": _user_config(NEW)}, {"name": "B"}]


RETRYING = "A replica failed to start with exception. Retrying 5 more time(s). Error:\nray.exceptions.RayTaskError: "


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        ("RUNNING", "", False),
        ("UNHEALTHY", "", False),  # Serve repairs it
        ("DEPLOYING", RETRYING + "OSError: [Errno 98] Address already in use", False),  # another start may help
        ("DEPLOY_FAILED", "The deployment failed to start 6 times in a row.", True),
        ("DEPLOYING", RETRYING + "services.inference.server.served.CanaryFailed: checkpoint app/solver/2: …", True),
    ],
)
def test_a_refused_checkpoint_is_an_error_before_serve_has_tried_all_starts(
    status: str, message: str, expected: bool
) -> None:
    application = {"status": status, "message": "", "deployments": {"A": {"status": "UPDATING", "message": message}}}
    assert serve.has_failed(application) is expected


TRACEBACK = b"Traceback (most recent call last):\n  File ...\nray.exceptions.ActorDiedError: The actor never ran\n"


@contextmanager
def fake_dashboard(answers: list[int]) -> Iterator[httpx.Client]:
    """A server that answers with these statuses in turn, and repeats the last one."""

    class Dashboard(Handler):
        def do_PUT(self) -> None:
            assert self.json() == {"applications": []}
            status = answers.pop(0) if len(answers) > 1 else answers[0]
            self.answer(status, b"" if status == 200 else TRACEBACK)

    with listening(Dashboard) as address, httpx.Client(base_url=address, trust_env=False) as client:
        yield client


def put(client: httpx.Client, *, refusals_are_final: bool = True) -> httpx.Response | str:
    def send() -> httpx.Response:
        return client.put("/api/serve/applications/", json={"applications": []})

    return serve._repeated(send, refusals_are_final=refusals_are_final)


def test_applications_are_sent_again_after_an_error_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_LONGEST_PAUSE_S", 0.01)
    with fake_dashboard([500, 503, 200]) as client:
        assert isinstance(put(client), httpx.Response)
    with fake_dashboard([404, 200]) as client:
        assert isinstance(put(client, refusals_are_final=False), httpx.Response)


@pytest.mark.parametrize(("status", "retry_s"), [(422, 60.0), (500, 0.0)])
def test_a_refusal_says_the_last_line_of_a_traceback(
    status: int, retry_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_RETRY_S", retry_s)
    with fake_dashboard([status]) as client:
        refusal = put(client)
    assert refusal == f"HTTP {status}: ray.exceptions.ActorDiedError: The actor never ran"
    with httpx.Client(base_url=f"http://127.0.0.1:{free_port()}", trust_env=False) as nobody:
        monkeypatch.setattr(serve, "_RETRY_S", 0.0)
        assert "ConnectError" in str(put(nobody))
