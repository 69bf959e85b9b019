"""Starts the Serve applications and swaps their checkpoints in place, through Serve's declarative REST API."""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args
from urllib.parse import urlsplit

import httpx

from core.errors import CoevoError
from core.settings.serving import Serving
from core.types import Checkpoint, ResourceKind
from core.waiting.polling import wait_until
from core.waiting.retries import Attempts
from orchestrator.installation.home import Services
from orchestrator.serving.applications import Application, read_applications, refuse_missing
from services.inference.server.served import CanaryFailed
from storage.files.checkpoints import verify

_RETRY_S = 60.0  # for which a request to Ray's dashboard is repeated
_POLL_S = 0.1
_LONGEST_PAUSE_S = 1.0  # between two attempts of a request
_PATIENCE_S = 900.0  # vLLM compiles a large model for minutes

EMBEDDED = Serving()
_LOGS: Application = {"logging_config": {"encoding": "JSON"}}  # replicas write a line of JSON for each event


class ServeError(CoevoError):
    """An application did not start, stop or take a checkpoint; the message names the application and the reason."""


def serve_checkpoints(
    services: Services,
    checkpoints: dict[str, Checkpoint],
    serving: Serving = EMBEDDED,
    fixed: Sequence[str] = (),
    for_later: Mapping[str, Checkpoint] = MappingProxyType({}),
) -> None:
    """Make each application in `checkpoints` (role -> checkpoint) hold its checkpoint, and start Serve if necessary.

    The applications in `fixed`, whose model never changes, are started too. All other applications of the file keep
    running as they are, or are stopped if `serving.release` is set. Applications that are not in the file are stopped.
    Without `serving.release`, those in `for_later` that do not run yet are started without waiting for them, because a
    later stage will need them and starting takes long.
    Replicas swap in place. A replica that has not swapped yet answers a request for the new checkpoint with HTTP 409,
    and the client repeats the request. Raises `ServeError`, `ConfigError`, and `CheckpointError` when a checkpoint is
    not what was published.
    """
    with _dashboard(services) as http:
        before = _applications(http)
        refuse_missing(serving.applications, [*checkpoints, *fixed])
        described = {name: {**_LOGS, **app} for name, app in read_applications(serving.applications).items()}
        applications = _with_checkpoints(described, before, checkpoints, fixed, serving, for_later)
        new = [
            checkpoint
            for name, checkpoint in checkpoints.items()
            if _held_config(before.get(name)) != _user_config(checkpoint)
        ]
        for checkpoint in new:  # replicas verify it too, but only after they have dropped the old one
            verify(Path(checkpoint.path), checkpoint.sha256)
        failed = {name for name in applications if _has_failed(before.get(name, {}))}
        if failed:  # Serve does not retry the same configuration, so the failed applications are removed first
            _put(http, services, {name: app for name, app in applications.items() if name not in failed})
            _wait_until_gone(http, failed)
        # Applications that a program deployed have no such configuration, and Serve's REST API cannot stop them.
        to_stop = {name for name, application in before.items() if _deployed(application)} - applications.keys()
        changed = {name for name, app in applications.items() if _deployed(before.get(name)) != app}
        if not (changed or failed or to_stop) and all(_settled(before.get(name)) for name in (*fixed, *checkpoints)):
            return
        if changed or failed or to_stop:
            _put(http, services, applications)
        _wait_until_gone(http, to_stop)  # until then they hold GPUs
        _wait_until_settled(http, {**dict.fromkeys(fixed), **checkpoints})


def reserved(services: Services) -> dict[ResourceKind, float]:
    """The CPUs and GPUs of Ray that the applications' replicas hold."""
    with _dashboard(services) as http:
        groups = _get(http, "/api/v0/placement_groups", detail=1, limit=10_000)["data"]["result"]["result"]
        applications = _applications(http)
    # APPLICATION#DEPLOYMENT -> the resources of each bundle of its replicas, for deployments with placement groups.
    # vLLM's have them; Serve's own API does not list these resources.
    bundles = defaultdict[str, list[dict[str, float]]](list)
    for group in groups:
        prefix, _, replica = (group["name"] or "").partition("::")
        if prefix == "SERVE_REPLICA" and group["state"] == "CREATED":
            bundles[replica.rpartition("#")[0]] += [bundle["unit_resources"] for bundle in group["bundles"]]
    held = [resources for of_deployment in bundles.values() for resources in of_deployment]
    for application, description in applications.items():
        for name, deployment in description["deployments"].items():
            if f"{application}#{name}" not in bundles:
                options = deployment["deployment_config"].get("ray_actor_options") or {}
                of_replica = {"CPU": float(options.get("num_cpus", 1.0)), "GPU": float(options.get("num_gpus", 0.0))}
                held += [of_replica] * len(deployment["replicas"])
    return {kind: sum(resources.get(kind, 0.0) for resources in held) for kind in get_args(ResourceKind)}


def _dashboard(services: Services) -> httpx.Client:
    # The dashboard speaks plain HTTP, so this loads no certificates: that would take longer than most requests.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.Client(
        base_url=services.dashboard_url, headers=services.ray_headers, timeout=60, trust_env=False, verify=tls
    )


def _with_checkpoints(
    applications: dict[str, Application],
    before: dict[str, Any],
    checkpoints: dict[str, Checkpoint],
    fixed: Sequence[str],
    serving: Serving,
    for_later: Mapping[str, Checkpoint],
) -> dict[str, Application]:
    """The applications that shall run. Each that is swapped holds its new checkpoint or keeps the one that it holds."""
    running = dict[str, Application]()
    for name, application in applications.items():
        if name not in checkpoints and name not in fixed and serving.release:
            continue
        if "deployments" not in application:
            running[name] = application
            continue
        first, *others = application["deployments"]
        # The configuration that runs, without the checkpoints that it holds.
        runs = _deployed(before.get(name)) or {}
        deployments = [
            {key: value for key, value in deployment.items() if key != "user_config"}
            for deployment in runs.get("deployments", [])
        ]
        config: dict[str, str] | None = None
        if name in checkpoints:
            config = _user_config(checkpoints[name])
        elif {**runs, "deployments": deployments} == application:
            config = _held_config(before.get(name))
        elif name in for_later:  # it does not run yet, or an application of another file has its name
            config = _user_config(for_later[name])
        if config:
            running[name] = {**application, "deployments": [{**first, "user_config": config}, *others]}
    return running


def _applications(http: httpx.Client) -> dict[str, Any]:
    applications: dict[str, Any] = _get(http, "/api/serve/applications/")["applications"]
    return applications


def _get(http: httpx.Client, path: str, **parameters: Any) -> Any:
    """The JSON at a path of Ray's dashboard. Raises `ServeError`."""
    answer = _repeated(lambda: http.get(path, params=parameters), refusals_are_final=False)
    if isinstance(answer, str):
        raise ServeError(f"Ray's dashboard: {path}: {answer}")
    return answer.json()


def _repeated(send: Callable[[], httpx.Response], *, refusals_are_final: bool) -> httpx.Response | str:
    """The answer to a request that may be sent again, or why there is none.

    A request that fails on Ray's side is repeated for a minute, because a run sends requests for hours.
    """
    attempts = Attempts(_RETRY_S, longest_pause_s=_LONGEST_PAUSE_S)
    while True:
        try:
            response = send()
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if response.is_success:
                return response
            lines = response.text.strip().splitlines() or [""]  # of a traceback, the last line has the error
            problem = f"HTTP {response.status_code}: {lines[-1][-500:]}"
            if response.is_client_error and refusals_are_final:
                return problem
        if not attempts.pause():
            return problem


def _held_config(application: dict[str, Any] | None) -> dict[str, str] | None:
    """The `user_config` of the application's first deployment, which names its checkpoint; None if it has none."""
    config = (application or {}).get("deployed_app_config") or {}
    return next((deployment.get("user_config") for deployment in config.get("deployments", [])), None)


def _deployed(application: dict[str, Any] | None) -> Application | None:
    """The configuration that was last deployed; None for an application that a program deployed."""
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
    answer = _repeated(lambda: http.put("/api/serve/applications/", json=config), refusals_are_final=True)
    if isinstance(answer, str):
        raise ServeError(f"Ray Serve at {services.dashboard_url} did not take the applications: {answer}")


def _wait_until_gone(http: httpx.Client, names: Set[str]) -> None:
    remaining: Set[str] = names

    def all_are_gone() -> bool:
        nonlocal remaining
        remaining = names & _applications(http).keys()
        return not remaining

    if not wait_until(all_are_gone, _PATIENCE_S, _POLL_S):
        raise ServeError(f"{', '.join(remaining)}: did not stop within {_PATIENCE_S:g} s")


def _wait_until_settled(http: httpx.Client, checkpoints: dict[str, Checkpoint | None]) -> None:
    """Wait until the applications are healthy. The checkpoints are for messages; None: the model never changes."""
    waiting: dict[str, Any] = {}

    def all_have_settled() -> bool:
        nonlocal waiting
        applications = _applications(http)
        waiting = {name: applications.get(name, {}) for name in checkpoints if not _settled(applications.get(name))}
        for name, application in waiting.items():
            if _has_failed(application):  # Serve repairs an unhealthy one by itself
                problem = f"did not take {checkpoint.id}" if (checkpoint := checkpoints[name]) else "did not start"
                raise ServeError(f"{name} {problem}: {_reason(application)}")
        return not waiting

    if not wait_until(all_have_settled, _PATIENCE_S, _POLL_S):
        raise ServeError(f"{', '.join(waiting)}: no answer within {_PATIENCE_S:g} s: {waiting}")


def _settled(application: dict[str, Any] | None) -> bool:
    if application is None or application["status"] != "RUNNING":
        return False
    return all(deployment["status"] == "HEALTHY" for deployment in application["deployments"].values())


def _has_failed(application: dict[str, Any]) -> bool:
    """Whether Serve gave the application up, or would in vain start it again: a replica refused the checkpoint itself.

    Serve tries three starts for each replica, and each takes vLLM minutes if the model is large.
    """
    return application.get("status") == "DEPLOY_FAILED" or CanaryFailed.__name__ in _reason(application)


def _reason(application: dict[str, Any]) -> str:
    deployments = application.get("deployments", {}).values()
    messages = [application.get("message", ""), *(deployment.get("message", "") for deployment in deployments)]
    return " ".join(filter(None, messages))[-2000:]
