"""The addresses of the services, as `coevo up` and `coevo status` print them, and the client of the REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.installation.home import Home, NotUp, Services, home
from orchestrator.installation.ports import Ports
from services.prefect_server import PrefectServer

if TYPE_CHECKING:
    from services.api.client import ApiClient

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


def client(url: str | None, key: str | None) -> ApiClient:
    """A client of the REST API at `url`; by default of the API that `coevo up` started, else at the usual port.

    The home's own key is sent only to the API that `coevo up` started from this home.
    """
    from services.api.client import ApiClient  # imported here so that no other command waits for it

    if url is not None:
        return ApiClient(url, key)
    if local_url := _local_api_url():
        return ApiClient(local_url, key or home().api_key)
    usual = f"http://127.0.0.1:{Ports().api}"
    note = f"`coevo up` has started no API from this COEVO_HOME ({home().path}), so {usual} is asked"
    typer.echo(f"{note}, which may be another's; --url or COEVO_API_URL names an API", err=True)
    return ApiClient(usual, key)


def _local_api_url() -> str:
    """The address of the API that `coevo up` started; empty if it started none."""
    try:
        return home().services().api_url
    except NotUp:
        return ""


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
