"""Requests to Prefect's REST API (https://docs.prefect.io/v3/api-ref/rest-api/server); written against 3.7.7."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import httpx

from core.waiting.retries import Attempts
from services.listeners import guard

_ATTEMPTS = 5


def is_away(error: httpx.HTTPError) -> bool:
    """Whether an error of Prefect's client says that the server does not answer, or has trouble of its own."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error
    return isinstance(error, httpx.TransportError)


@dataclass(frozen=True, slots=True)
class PrefectServer:
    """The Prefect server at `url`. Its UI is at `url`, its API at `url`/api."""

    url: str
    # USER:PASSWORD, as in Prefect's PREFECT_API_AUTH_STRING; None: the server asks for no password
    auth_string: str | None = field(default=None, repr=False)
    ui_url: str | None = None  # address of the UI for a browser, if it is not `url`

    def __post_init__(self) -> None:
        """From now on this process sends the password to no other user's process, with Prefect's own clients too."""
        if self.auth_string:
            guard(self.url)

    @classmethod
    def from_environment(cls) -> PrefectServer | None:
        """The server that Prefect's own environment variables name; None if PREFECT_API_URL is not set."""
        if not (url := os.environ.get("PREFECT_API_URL")):
            return None
        auth_string, ui_url = os.environ.get("PREFECT_API_AUTH_STRING"), os.environ.get("PREFECT_UI_URL")
        return cls(url.rstrip("/").removesuffix("/api"), auth_string or None, ui_url)

    def request(self, method: str, path: str, body: object = None, timeout_s: float = 10.0) -> httpx.Response:
        """Send a request for `path`, which is below /api. Raises `httpx.TransportError` and `httpx.InvalidURL`.

        Prefect answers 503 if a request may be sent again, for instance while its SQLite is busy. Then the request is
        repeated a few times, but not later than `timeout_s` after the first. So the call takes at most twice as long.
        After other failures it may have started a run already.
        """
        user, _, password = (self.auth_string or "").partition(":")
        auth = httpx.BasicAuth(user, password) if self.auth_string else None
        address = f"{self.url}/api{path}"
        attempts = Attempts(timeout_s, _ATTEMPTS)
        while True:
            response = httpx.request(method, address, json=body, auth=auth, timeout=timeout_s, trust_env=False)
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE or not attempts.pause():
                return response

    def page_of(self, flow_run: str) -> str:
        """The address of a flow run in the UI, by its id."""
        return f"{self.ui_url or self.url}/runs/flow-run/{flow_run}"
