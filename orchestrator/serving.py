"""Which checkpoint each Serve application holds: swapped in place through Serve's declarative REST API."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from core.errors import CoevoError
from core.types import Checkpoint
from orchestrator.home import SERVE_CONFIG, Home, Services
from storage.checkpoints import verify

_PATIENCE_S = 180.0


class ServeError(CoevoError):
    """An application did not take a checkpoint; the message says which and why."""


def serve_checkpoints(services: Services, wanted: dict[str, Checkpoint]) -> None:
    """Make each application (role -> checkpoint) hold its checkpoint, starting Serve when it is not up.

    Applications that are not named keep what they hold. Replicas swap in place, one after the other; until the last
    has, it answers 409 to whoever asks for the new checkpoint, and the client asks again. Raises `ServeError`, and
    `CheckpointError` when a checkpoint is not what was published.
    """
    with _dashboard(services) as http:
        before = _applications(http)
        config = _config(services, before)
        for application in config["applications"]:
            checkpoint = wanted.get(application["name"])
            if checkpoint is not None:
                application["deployments"][0]["user_config"] = _user_config(checkpoint)
        config["applications"] = [a for a in config["applications"] if "user_config" in a["deployments"][0]]
        new = [c for name, c in wanted.items() if _held(before.get(name)) != _user_config(c)]
        for checkpoint in new:  # replicas verify it too; here before any of them lets go of its own
            verify(Path(checkpoint.path), checkpoint.sha256)
        failed = {name for name in wanted if before.get(name, {}).get("status") == "DEPLOY_FAILED"}
        if failed:  # Serve does not try it again under the same configuration, so it goes first
            _put(http, {**config, "applications": [a for a in config["applications"] if a["name"] not in failed]})
            _wait_until_gone(http, failed)
        if new or failed:
            _put(http, config)
        _wait(http, wanted)


@contextmanager
def turn(home: Home) -> Iterator[None]:
    """Wait for, and have, the applications to oneself: two runs that swapped their checkpoints in and out under each
    other would wait for ever. The operating system gives the turn back when the process dies."""
    home.path.mkdir(parents=True, exist_ok=True)
    with (home.path / "serving.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def held_checkpoints(services: Services) -> dict[str, str]:
    """Application -> checkpoint it was last told to hold."""
    with _dashboard(services) as http:
        found = {name: _held(application) for name, application in _applications(http).items()}
    return {name: config["checkpoint"] for name, config in found.items() if config}


def _dashboard(services: Services) -> httpx.Client:
    return httpx.Client(base_url=services.dashboard_url, headers=services.ray_headers, timeout=60, trust_env=False)


def _config(services: Services, before: dict[str, Any]) -> dict[str, Any]:
    """The Serve config file, with the checkpoints that the running applications hold."""
    config: dict[str, Any] = yaml.safe_load(SERVE_CONFIG.read_text())
    config["http_options"]["port"] = urlsplit(services.serve_url).port
    for application in config["applications"]:
        held = _held(before.get(application["name"]))
        if held:
            application["deployments"][0]["user_config"] = held
    return config


def _applications(http: httpx.Client) -> dict[str, Any]:
    applications: dict[str, Any] = http.get("/api/serve/applications/").raise_for_status().json()["applications"]
    return applications


def _held(application: dict[str, Any] | None) -> dict[str, str] | None:
    config = (application or {}).get("deployed_app_config") or {}
    return next((d.get("user_config") for d in config.get("deployments", [])), None)


def _user_config(checkpoint: Checkpoint) -> dict[str, str]:
    return {"checkpoint": checkpoint.id, "folder": checkpoint.path, "sha256": checkpoint.sha256}


def _put(http: httpx.Client, config: dict[str, Any]) -> None:
    response = http.put("/api/serve/applications/", json=config)
    if response.is_error:
        raise ServeError(f"Ray Serve refused the configuration: HTTP {response.status_code}: {response.text}")


def _wait_until_gone(http: httpx.Client, names: set[str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while left := names & _applications(http).keys():
        if time.monotonic() > deadline:
            raise ServeError(f"{', '.join(left)}: failed to deploy, and did not go within {_PATIENCE_S:g} s")
        time.sleep(0.1)


def _wait(http: httpx.Client, wanted: dict[str, Checkpoint]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        applications = _applications(http)
        waiting = {name: applications.get(name, {}) for name in wanted if not _settled(applications.get(name))}
        if not waiting:
            return
        for name, application in waiting.items():
            if application.get("status") == "DEPLOY_FAILED":  # an unhealthy one is being mended
                raise ServeError(f"{name} did not take {wanted[name].id}: {_reason(application)}")
        if time.monotonic() > deadline:
            raise ServeError(f"{', '.join(waiting)}: no answer within {_PATIENCE_S:g} s: {waiting}")
        time.sleep(0.1)


def _settled(application: dict[str, Any] | None) -> bool:
    if application is None or application["status"] != "RUNNING":
        return False
    return all(d["status"] == "HEALTHY" for d in application["deployments"].values())


def _reason(application: dict[str, Any]) -> str:
    messages = [application.get("message", ""), *(d.get("message", "") for d in application["deployments"].values())]
    return " ".join(filter(None, messages))[-2000:]
