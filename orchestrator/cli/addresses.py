"""Where the services are: what `coevo up` and `coevo status` print, and which API a command asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.installation import cluster
from orchestrator.installation.home import Home, NotUp, Services, home

if TYPE_CHECKING:
    from services.api.client import ApiClient

Url = Annotated[
    str | None,
    typer.Option(
        envvar="COEVO_API_URL",
        help="Address of the REST API; by default that of the services that `coevo up` started here.",
        show_default=False,
    ),
]
Key = Annotated[
    str | None, typer.Option(envvar="COEVO_API_KEY", help="A key with the scope that it takes.", show_default=False)
]


def client(url: str | None, key: str | None) -> ApiClient:
    """The REST API at `url`; without one, at the address that `coevo up` chose, or where `coevo api` is by default.

    The home's own key goes to the API that `coevo up` started from this home, and to no other.
    """
    from services.api.client import ApiClient  # no other command waits for it

    if url is None and (started := _started()):
        return ApiClient(started, key or home().api_key)
    return ApiClient(url or f"http://127.0.0.1:{cluster.Ports().api}", key)


def _started() -> str:
    try:
        return home().services().api_url
    except NotUp:
        return ""


def page(url: str, key: str | None) -> str:
    """The dashboard's address, with a key in the part that browsers do not send."""
    return f"{url}/#key={key}" if key else url


def addresses(home: Home, services: Services, secrets: bool = False) -> list[str]:
    """The address of every service as a line of text, with what it asks for where `secrets` are wanted. The API's is
    missing where somebody else started it."""
    api, rows = services.api_url, []
    if api:
        rows = [("Dashboard", page(api, home.api_key if secrets else None))]
        rows += [("REST API", f"{api}/api/v1 (described at {api}/api/openapi.json)")]
    password = f", password {services.prefect_auth}" if secrets and services.prefect_auth else ""
    rows += [
        ("Prefect UI", f"{services.prefect_url}{password}"),
        ("Ray dashboard", services.dashboard_url),
        ("Ray", services.ray_address),
        ("Inference", f"{services.endpoint('solver')} and {services.endpoint('challenger')}, while a run uses them"),
        ("Home", str(home.path)),
    ]
    return [f"{name:<15} {address}" for name, address in rows]
