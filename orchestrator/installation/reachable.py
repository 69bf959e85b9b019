"""Whether the services answer: Ray, Prefect and the REST API are asked with their secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx

from core.waiting.polling import wait_until
from orchestrator.installation.home import Home, NotUp, Services
from services.listeners import stranger_of
from services.prefect.server import PrefectServer

_ANSWER_S = 2.0
_RAY_IS_BACK_S, _POLL_S = 60.0, 0.2  # how long a Ray that is starting is waited for


def problems_of(services: Services) -> list[str]:
    """The problems with the services that a run needs, each with the service's name."""
    return [f"{name}: {problem}" for name, problem in problem_of_each(services).items() if problem]


def problem_of_each(services: Services) -> dict[str, str | None]:
    """Service that a run needs -> the problem with it, or None."""
    return {"ray": problem_with_ray(services), "prefect": problem_with_prefect(services.prefect)}


def problem_with_ray(services: Services) -> str | None:
    """The problem with Ray's dashboard, through which Ray is asked, or with its address; None if it can be used.

    Ray's own clients do not ask whose process listens at the address before they send the token, so it is asked here.
    """
    url = services.dashboard_url
    if not services.ray_address:
        return f"{url}: Ray is starting, or has ended"
    if (stranger := stranger_of(services.ray_address)) is not None:
        return stranger
    return _problem(url, lambda: _get(f"{url}/api/version", services.ray_headers), "RAY_AUTH_TOKEN")


def wait_for_ray(home: Home) -> Services:
    """Wait for a Ray that is just starting, and return the services with its address. Raises `NotUp` if it does not
    answer, since `ray.init` would wait without end."""
    if not wait_until(lambda: problem_with_ray(home.services()) is None, _RAY_IS_BACK_S, _POLL_S):
        raise NotUp(
            f"Ray: {problem_with_ray(home.services())}; `coevo up` starts what has ended, and `coevo resume` continues "
            "a run"
        )
    return home.services()


def ray_check(home: Home) -> Callable[[], bool] | None:
    """A function that tells whether the Ray of this home answers; None if there are no services."""
    try:
        services = home.services()
    except NotUp:
        return None
    return lambda: problem_with_ray(services) is None


def has_node(services: Services) -> bool:
    """Whether a node of Ray has registered. Ray's dashboard answers before that, and Ray may still end."""
    try:
        response = _get(f"{services.dashboard_url}/api/v0/nodes", services.ray_headers)
    except httpx.TransportError:
        return False
    if response.status_code != httpx.codes.OK:
        return False
    return any(node["state"] == "ALIVE" for node in response.json()["data"]["result"]["result"])


def problem_with_prefect(server: PrefectServer) -> str | None:
    """The problem with the Prefect server; None if it can be used."""

    def request() -> httpx.Response:  # unlike /health, this route needs the password
        return server.request("GET", "/admin/version", timeout_s=_ANSWER_S)

    return _problem(server.url, request, "PREFECT_API_AUTH_STRING")


def problem_with_api(home: Home, api_url: str) -> str | None:
    """The problem with the REST API of this home; None if it answers to the home's own key."""
    headers = {"Authorization": f"Bearer {home.api_key}"}
    return _problem(api_url, lambda: _get(f"{api_url}/api/v1/runs", headers), "API key")


def is_healthy(api_url: str) -> bool:
    """Whether the REST API and its database answer, which needs no key."""
    try:
        return _get(f"{api_url}/healthz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def has_deployments(server: PrefectServer) -> bool:
    """Whether the runner has registered its deployments with Prefect."""
    try:
        response = server.request("POST", "/deployments/count", {}, _ANSWER_S)
    except httpx.TransportError:
        return False
    return response.status_code == 200 and response.json() > 0


def _problem(url: str, request: Callable[[], httpx.Response], secret: str) -> str | None:
    """The problem with the service at `url`; None if it answers. `secret` is the environment variable of its secret."""
    try:
        status = request().status_code
    except httpx.TransportError:
        return f"{url} does not answer" if (stranger := stranger_of(url)) is None else f"{url}: {stranger}"
    if status == httpx.codes.UNAUTHORIZED:
        return f"{url} answers with HTTP 401: it expects another {secret}"
    return None if status == httpx.codes.OK else f"{url} answers with HTTP {status}"


def _get(url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=_ANSWER_S, trust_env=False)
