"""Ray Serve's declarative REST API on Ray's dashboard: which applications run, and which checkpoint each of them holds.

The checkpoint is the `user_config` of an application's first deployment. Serve sends a change of it to every replica
without a restart.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from core.errors import CoevoError
from core.waiting.polling import wait_until
from core.waiting.retries import Attempts
from services.inference.server.served import CanaryFailed, Served
from services.listeners import guard
from storage.files.checkpoints import digest, manifest

_RETRY_S = 60.0  # for which a request to Ray's dashboard is repeated
_POLL_S = 0.1
_LONGEST_PAUSE_S = 1.0  # between two attempts of a request
_PATIENCE_S = 900.0  # vLLM compiles a large model for minutes

Application = dict[str, Any]  # as in a Serve config file


class ServeError(CoevoError):
    """An application did not start, stop or take a checkpoint; the message names the application and the reason."""


def dashboard(url: str, ray_token: str) -> httpx.Client:
    """A client of Ray's dashboard, which sends Ray's token to no other user's process on this machine."""
    guard(url)
    # The dashboard speaks plain HTTP, so this loads no certificates: that would take longer than most requests.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    headers = {"Authorization": f"Bearer {ray_token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, verify=tls)


def swap_in(dashboard_url: str, ray_token: str, endpoint: str, application: str, name: str, folder: Path) -> str:
    """Have a running application hold the weights that a training has written to `folder`, and return when all its
    replicas do. All other applications stay as they are. `endpoint` is an address of Serve's.

    Returns the checkpoint that the replies name: `name` and the beginning of the digest, which is computed here once.
    Raises `ServeError`.
    """
    sha256 = digest(manifest(folder))
    served = Served(checkpoint=f"{name}-{sha256[:12]}", folder=folder, sha256=sha256, published=False)
    with dashboard(dashboard_url, ray_token) as http:
        running = {app: config for app, status in statuses(http).items() if (config := deployed(status))}
        if application not in running:
            raise ServeError(f"{application}: expected a running application, got {', '.join(running) or 'none'}")
        running[application] = holding(running[application], user_config(served))
        put(http, endpoint, running)
        wait_until_settled(http, {application: served.checkpoint})
    return served.checkpoint


def statuses(http: httpx.Client) -> dict[str, Any]:
    """What Serve says of each application."""
    applications: dict[str, Any] = get(http, "/api/serve/applications/")["applications"]
    return applications


def get(http: httpx.Client, path: str, **parameters: Any) -> Any:
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


def held_config(application: dict[str, Any] | None) -> dict[str, Any] | None:
    """The `user_config` of the application's first deployment, which names its checkpoint; None if it has none."""
    config = (application or {}).get("deployed_app_config") or {}
    return next((deployment.get("user_config") for deployment in config.get("deployments", [])), None)


def deployed(application: dict[str, Any] | None) -> Application | None:
    """The configuration that was last deployed; None for an application that a program deployed."""
    return (application or {}).get("deployed_app_config")


def user_config(served: Served) -> dict[str, Any]:
    """The `user_config` that makes a deployment's replicas hold a checkpoint."""
    return served.model_dump(mode="json", exclude_defaults=True)


def holding(application: Application, config: dict[str, Any]) -> Application:
    """The application's configuration, in which its first deployment has this `user_config`."""
    first, *others = application["deployments"]
    return {**application, "deployments": [{**first, "user_config": config}, *others]}


def put(http: httpx.Client, endpoint: str, applications: dict[str, Application]) -> None:
    """Make Serve, whose address `endpoint` begins with, run these applications and no others. Raises `ServeError`."""
    address = urlsplit(endpoint)
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": address.hostname, "port": address.port},
        "applications": list(applications.values()),
    }
    answer = _repeated(lambda: http.put("/api/serve/applications/", json=config), refusals_are_final=True)
    if isinstance(answer, str):
        raise ServeError(f"Ray Serve at {http.base_url} did not take the applications: {answer}")


def wait_until_gone(http: httpx.Client, names: Set[str]) -> None:
    remaining: Set[str] = names

    def all_are_gone() -> bool:
        nonlocal remaining
        remaining = names & statuses(http).keys()
        return not remaining

    if not wait_until(all_are_gone, _PATIENCE_S, _POLL_S):
        raise ServeError(f"{', '.join(remaining)}: did not stop within {_PATIENCE_S:g} s")


def wait_until_settled(http: httpx.Client, checkpoints: Mapping[str, str | None]) -> None:
    """Wait until the applications are healthy. The checkpoints' ids are for messages; None: the model never changes."""
    waiting: dict[str, Any] = {}

    def all_have_settled() -> bool:
        nonlocal waiting
        applications = statuses(http)
        waiting = {name: applications.get(name, {}) for name in checkpoints if not settled(applications.get(name))}
        for name, application in waiting.items():
            if has_failed(application):  # Serve repairs an unhealthy one by itself
                problem = f"did not take {checkpoint}" if (checkpoint := checkpoints[name]) else "did not start"
                raise ServeError(f"{name} {problem}: {_reason(application)}")
        return not waiting

    if not wait_until(all_have_settled, _PATIENCE_S, _POLL_S):
        raise ServeError(f"{', '.join(waiting)}: no answer within {_PATIENCE_S:g} s: {waiting}")


def settled(application: dict[str, Any] | None) -> bool:
    if application is None or application["status"] != "RUNNING":
        return False
    return all(deployment["status"] == "HEALTHY" for deployment in application["deployments"].values())


def has_failed(application: dict[str, Any]) -> bool:
    """Whether Serve gave the application up, or would in vain start it again: a replica refused the checkpoint itself.

    Serve tries three starts for each replica, and each takes vLLM minutes if the model is large.
    """
    return application.get("status") == "DEPLOY_FAILED" or CanaryFailed.__name__ in _reason(application)


def _reason(application: dict[str, Any]) -> str:
    deployments = application.get("deployments", {}).values()
    messages = [application.get("message", ""), *(deployment.get("message", "") for deployment in deployments)]
    return " ".join(filter(None, messages))[-2000:]
