"""Starts the Serve applications and swaps their checkpoints in place, through Serve's declarative REST API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import httpx

from core.settings.serving import Serving
from core.types import Checkpoint, ResourceKind
from orchestrator.installation.home import Services
from orchestrator.serving.applications import read_applications, refuse_missing
from services.inference import serve
from services.inference.serve import Application
from services.inference.server.served import Served
from storage.files.checkpoints import verify

EMBEDDED = Serving()
_LOGS: Application = {"logging_config": {"encoding": "JSON"}}  # replicas write a line of JSON for each event


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
        before = serve.statuses(http)
        refuse_missing(serving.applications, [*checkpoints, *fixed])
        described = {name: {**_LOGS, **app} for name, app in read_applications(serving.applications).items()}
        applications = _with_checkpoints(described, before, checkpoints, fixed, serving, for_later)
        new = [
            checkpoint
            for name, checkpoint in checkpoints.items()
            if serve.held_config(before.get(name)) != _user_config(checkpoint)
        ]
        for checkpoint in new:  # replicas verify it too, but only after they have dropped the old one
            verify(Path(checkpoint.path), checkpoint.sha256)
        failed = {name for name in applications if serve.has_failed(before.get(name, {}))}
        if failed:  # Serve does not retry the same configuration, so the failed applications are removed first
            serve.put(http, services.serve_url, {name: app for name, app in applications.items() if name not in failed})
            serve.wait_until_gone(http, failed)
        # Applications that a program deployed have no such configuration, and Serve's REST API cannot stop them.
        to_stop = {name for name, application in before.items() if serve.deployed(application)} - applications.keys()
        changed = {name for name, app in applications.items() if serve.deployed(before.get(name)) != app}
        if not (changed or failed or to_stop) and all(
            serve.settled(before.get(name)) for name in (*fixed, *checkpoints)
        ):
            return
        if changed or failed or to_stop:
            serve.put(http, services.serve_url, applications)
        serve.wait_until_gone(http, to_stop)  # until then they hold GPUs
        ids = {name: checkpoint.id for name, checkpoint in checkpoints.items()}
        serve.wait_until_settled(http, {**dict.fromkeys(fixed), **ids})


def reserved(services: Services) -> dict[ResourceKind, float]:
    """The CPUs and GPUs of Ray that the applications' replicas hold."""
    with _dashboard(services) as http:
        groups = serve.get(http, "/api/v0/placement_groups", detail=1, limit=10_000)["data"]["result"]["result"]
        applications = serve.statuses(http)
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
    return serve.dashboard(services.dashboard_url, services.ray_token)


def _user_config(checkpoint: Checkpoint) -> dict[str, Any]:
    return serve.user_config(Served(checkpoint=checkpoint.id, folder=Path(checkpoint.path), sha256=checkpoint.sha256))


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
        # The configuration that runs, without the checkpoints that it holds.
        runs = serve.deployed(before.get(name)) or {}
        deployments = [
            {key: value for key, value in deployment.items() if key != "user_config"}
            for deployment in runs.get("deployments", [])
        ]
        config: dict[str, Any] | None = None
        if name in checkpoints:
            config = _user_config(checkpoints[name])
        elif {**runs, "deployments": deployments} == application:
            config = serve.held_config(before.get(name))
        elif name in for_later:  # it does not run yet, or an application of another file has its name
            config = _user_config(for_later[name])
        if config:
            running[name] = serve.holding(application, config)
    return running
