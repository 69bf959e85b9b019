"""The addresses of the services, as `coevo up` and `coevo status` print them, and the client of the REST API."""

from __future__ import annotations

from typing import Annotated

import typer

from core.errors import CoevoError
from orchestrator.installation.home import Home, NotUp, Services, home
from orchestrator.installation.ports import Ports
from services.client import Client
from services.listeners import guard
from services.prefect.server import PrefectServer

Url = Annotated[
    str | None,
    typer.Option(
        envvar="COEVO_API_URL",
        help="Address of the REST API; by default the API that `coevo up` started here.",
        show_default=False,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        envvar="COEVO_API_KEY",
        help="API key with the scope that the command needs; by default this installation's own key, if `coevo up` "
        "started the API.",
        show_default=False,
    ),
]


DASHBOARD = "Dashboard"  # what its line begins with
REFERENCE = "/api/docs"  # the page of the API's reference


class ApiError(CoevoError):
    """The API refused a request, whose reason is in the message, or it did not answer."""


def client(url: str | None, key: str | None) -> Client:
    """A client of the REST API at `url`; by default of the API that `coevo up` started, else at the usual port.

    The home's own key is sent only to the API that `coevo up` started from this home. The client raises `ApiError`.
    """
    if url is None:
        try:
            url = home().services().api_url or None
        except NotUp:
            url = None
        if url is not None:
            key = key or home().api_key
        else:
            url = f"http://127.0.0.1:{Ports().api}"
            note = f"`coevo up` has started no API from this COEVO_HOME ({home().path}), so {url} is asked"
            typer.echo(f"{note}, which may be another's; --url or COEVO_API_URL names an API", err=True)
    if key:  # it is sent to no other user's process on this machine
        guard(url)
    return Client(url, key, error=ApiError)


def page(url: str, key: str | None) -> str:
    """The dashboard's address. The key is in the fragment after `#`, which browsers do not send."""
    return f"{url}/#key={key}" if key else url


def addresses(home: Home, services: Services, secrets: bool = False) -> dict[str, str]:
    """Service -> its address; with `secrets`, its key, password or token too.

    The dashboard and the REST API are left out where the services run in containers.
    """
    api, rows = services.api_url, []
    if api:
        rows = [(DASHBOARD, page(api, home.api_key if secrets else None))]
        rows += [("REST API", f"{api}/api/v1 (described at {api}{REFERENCE})")]
    # Ray's dashboard puts the token into a cookie, which a browser sends to every port of this machine.
    token = f", token {services.ray_token} (for a private window only)" if secrets else ""
    password = f", password {services.prefect_auth}" if secrets and services.prefect_auth else ""
    rows += [
        ("Prefect UI", f"{services.prefect_url}{password}"),
        ("Ray dashboard", f"{services.dashboard_url}{token}"),
        ("Ray", services.ray_address),
        ("Inference", f"{services.endpoint('solver')} and {services.endpoint('challenger')}, while a run uses them"),
        ("Home", str(home.path)),
    ]
    return dict(rows)


def lines_of(addresses: dict[str, str]) -> list[str]:
    """One line of text for each address."""
    return [f"{name:<15} {address}" for name, address in addresses.items()]


def known_prefect() -> PrefectServer | None:
    """The Prefect server that `coevo up` started or that the environment names; None if there is neither."""
    try:
        return home().services().prefect
    except NotUp:
        return PrefectServer.from_environment()
