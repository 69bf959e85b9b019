"""Which checkpoint each Serve application holds: swapped in place through Serve's declarative REST API."""

from __future__ import annotations

import fcntl
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args
from urllib.parse import urlsplit

import httpx

from core.errors import CoevoError
from core.settings.serving import Serving
from core.types import Checkpoint, ResourceKind
from core.waiting import wait_until
from orchestrator.installation.home import Home, Services
from orchestrator.serving.applications import Application, read_applications, refuse_missing
from storage.checkpoints import verify

_HICCUP_S = 60.0
_POLL_S = 0.1
_PATIENCE_S = 900.0  # vLLM compiles a large model for minutes; what fails is said at once

EMBEDDED = Serving()


class ServeError(CoevoError):
    """An application did not take a checkpoint; the message says which and why."""


def serve_checkpoints(
    services: Services,
    wanted: dict[str, Checkpoint],
    serving: Serving = EMBEDDED,
    fixed: Sequence[str] = (),
    soon: Mapping[str, Checkpoint] = MappingProxyType({}),
) -> None:
    """Make each application (role -> checkpoint) hold its checkpoint, starting Serve when it is not up.

    Applications that are not named keep what they hold, or are stopped, as `serving.release` says; so do those of
    `serving` that hold a fixed model, but for the `fixed` ones, which are wanted. What is not in its file is stopped.
    Where nothing is stopped, those of `soon` that do not run yet are started too, which is not waited for: a later
    stage will ask them, and starting takes long.
    Replicas swap in place; until the last has, it answers 409 to whoever asks for the new checkpoint, and the client
    asks again. Raises `ServeError`, `ConfigError`, and `CheckpointError` when a checkpoint is not what was published.
    """
    with _dashboard(services) as http:
        before = _applications(http)
        refuse_missing(serving.applications, [*wanted, *fixed])
        applications = _with_checkpoints(read_applications(serving.applications), before, wanted, fixed, serving, soon)
        new = [c for name, c in wanted.items() if _held(before.get(name)) != _user_config(c)]
        for checkpoint in new:  # replicas verify it too; here before any of them lets go of its own
            verify(Path(checkpoint.path), checkpoint.sha256)
        failed = {name for name in applications if before.get(name, {}).get("status") == "DEPLOY_FAILED"}
        if failed:  # Serve does not try it again under the same configuration, so it goes first
            _put(http, services, {name: a for name, a in applications.items() if name not in failed})
            _wait_until_gone(http, failed)
        # What somebody deployed by a program is not ours to stop, nor would Serve.
        gone = {name for name, application in before.items() if _deployed(application)} - applications.keys()
        changed = {name for name, a in applications.items() if _deployed(before.get(name)) != a}
        if not (changed or failed or gone) and all(_settled(before.get(name)) for name in (*fixed, *wanted)):
            return
        if changed or failed or gone:
            _put(http, services, applications)
        _wait_until_gone(http, gone)  # and what they held of GPUs with them
        _wait(http, {**dict.fromkeys(fixed), **wanted})


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
        configs = {name: _held(application) for name, application in _applications(http).items()}
    return {name: config["checkpoint"] for name, config in configs.items() if config}


def reserved(services: Services) -> dict[ResourceKind, float]:
    """What the applications' replicas hold of Ray's CPUs and GPUs."""
    with _dashboard(services) as http:
        grouped, applications = _in_placement_groups(http), _applications(http)
    held = [resources for bundles in grouped.values() for resources in bundles]
    for application, description in applications.items():
        for name, deployment in description["deployments"].items():
            if f"{application}#{name}" not in grouped:
                held += [_of_a_replica(deployment["deployment_config"])] * len(deployment["replicas"])
    return {kind: sum(resources.get(kind, 0.0) for resources in held) for kind in get_args(ResourceKind)}


def _in_placement_groups(http: httpx.Client) -> dict[str, list[dict[str, float]]]:
    """Application#deployment -> what each bundle of its replicas holds, of those that have placement groups, as vLLM's
    do; Serve's own API leaves these out."""
    listed = _get(http, "/api/v0/placement_groups", detail=1, limit=10_000)
    bundles = defaultdict[str, list[dict[str, float]]](list)
    for group in listed["data"]["result"]["result"]:
        prefix, _, replica = (group["name"] or "").partition("::")
        if prefix == "SERVE_REPLICA" and group["state"] == "CREATED":
            bundles[replica.rpartition("#")[0]] += [bundle["unit_resources"] for bundle in group["bundles"]]
    return bundles


def _of_a_replica(deployment: dict[str, Any]) -> dict[str, float]:
    options = deployment.get("ray_actor_options") or {}
    return {"CPU": float(options.get("num_cpus", 1.0)), "GPU": float(options.get("num_gpus", 0.0))}


def _dashboard(services: Services) -> httpx.Client:
    # By http on this machine, so no certificates are read, which would take longer than most requests.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.Client(
        base_url=services.dashboard_url, headers=services.ray_headers, timeout=60, trust_env=False, verify=tls
    )


def _with_checkpoints(
    applications: dict[str, Application],
    before: dict[str, Any],
    wanted: dict[str, Checkpoint],
    fixed: Sequence[str],
    serving: Serving,
    soon: Mapping[str, Checkpoint],
) -> dict[str, Application]:
    """Those that are to run: a checkpoint in each that is swapped, the wanted one or what it holds."""
    running = dict[str, Application]()
    for name, application in applications.items():
        if name not in wanted and name not in fixed and serving.release:
            continue
        if "deployments" not in application:
            running[name] = application
            continue
        first, *others = application["deployments"]
        config: dict[str, str] | None = None
        if name in wanted:
            config = _user_config(wanted[name])
        elif _same(application, before.get(name)):
            config = _held(before.get(name))
        elif name in soon:  # not with what another file's application held
            config = _user_config(soon[name])
        if config:
            running[name] = {**application, "deployments": [{**first, "user_config": config}, *others]}
    return running


def _applications(http: httpx.Client) -> dict[str, Any]:
    applications: dict[str, Any] = _get(http, "/api/serve/applications/")["applications"]
    return applications


def _get(http: httpx.Client, path: str, **parameters: Any) -> Any:
    """The dashboard's JSON, asked for again for a minute while it does not answer: it is asked for hours."""
    deadline = time.monotonic() + _HICCUP_S
    while True:
        try:
            return http.get(path, params=parameters).raise_for_status().json()
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            if time.monotonic() > deadline:
                raise ServeError(f"Ray's dashboard: {path}: {type(error).__name__}: {error}") from error
            time.sleep(1)


def _held(application: dict[str, Any] | None) -> dict[str, str] | None:
    config = (application or {}).get("deployed_app_config") or {}
    return next((d.get("user_config") for d in config.get("deployments", [])), None)


def _same(application: Application, before: dict[str, Any] | None) -> bool:
    """Whether the application that runs is this one, whichever checkpoint it holds."""
    deployed = _deployed(before) or {}
    deployments = [{k: v for k, v in d.items() if k != "user_config"} for d in deployed.get("deployments", [])]
    return {**deployed, "deployments": deployments} == application


def _deployed(application: dict[str, Any] | None) -> Application | None:
    """What was last asked of it."""
    return (application or {}).get("deployed_app_config")


def _user_config(checkpoint: Checkpoint) -> dict[str, str]:
    return {"checkpoint": checkpoint.id, "folder": checkpoint.path, "sha256": checkpoint.sha256}


def _put(http: httpx.Client, services: Services, applications: dict[str, Application]) -> None:
    address = urlsplit(services.serve_url)
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": address.hostname, "port": address.port},
        "applications": list(applications.values()),
    }
    response = http.put("/api/serve/applications/", json=config)
    if response.is_error:
        raise ServeError(f"Ray Serve refused the configuration: HTTP {response.status_code}: {response.text}")


def _wait_until_gone(http: httpx.Client, names: Set[str]) -> None:
    left: Set[str] = names

    def all_are_gone() -> bool:
        nonlocal left
        left = names & _applications(http).keys()
        return not left

    if not wait_until(all_are_gone, _PATIENCE_S, _POLL_S):
        raise ServeError(f"{', '.join(left)}: did not stop within {_PATIENCE_S:g} s")


def _wait(http: httpx.Client, wanted: dict[str, Checkpoint | None]) -> None:
    waiting: dict[str, Any] = {}

    def all_have_settled() -> bool:
        nonlocal waiting
        applications = _applications(http)
        waiting = {name: applications.get(name, {}) for name in wanted if not _settled(applications.get(name))}
        for name, application in waiting.items():
            if application.get("status") == "DEPLOY_FAILED":  # an unhealthy one is being mended
                what = f"did not take {checkpoint.id}" if (checkpoint := wanted[name]) else "did not start"
                raise ServeError(f"{name} {what}: {_reason(application)}")
        return not waiting

    if not wait_until(all_have_settled, _PATIENCE_S, _POLL_S):
        raise ServeError(f"{', '.join(waiting)}: no answer within {_PATIENCE_S:g} s: {waiting}")


def _settled(application: dict[str, Any] | None) -> bool:
    if application is None or application["status"] != "RUNNING":
        return False
    return all(d["status"] == "HEALTHY" for d in application["deployments"].values())


def _reason(application: dict[str, Any]) -> str:
    messages = [application.get("message", ""), *(d.get("message", "") for d in application["deployments"].values())]
    return " ".join(filter(None, messages))[-2000:]
