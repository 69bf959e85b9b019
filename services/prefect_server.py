"""Requests to Prefect's REST API (https://docs.prefect.io/v3/api-ref/rest-api/server); written against 3.7.7."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import httpx

_PAUSES_S = (0.2, 0.5, 1.0, 2.0)  # before the server is asked again


@dataclass(frozen=True, slots=True)
class PrefectServer:
    """The server at `url`, below which its UI is, and its API at /api."""

    url: str
    # USER:PASSWORD, Prefect's PREFECT_API_AUTH_STRING; None: the server asks for none
    auth_string: str | None = field(default=None, repr=False)
    ui_url: str | None = None  # as a browser reaches it, where that is elsewhere

    @classmethod
    def from_environment(cls) -> PrefectServer | None:
        """What Prefect's own variables name; None where PREFECT_API_URL is not set."""
        if not (url := os.environ.get("PREFECT_API_URL")):
            return None
        auth_string, ui_url = os.environ.get("PREFECT_API_AUTH_STRING"), os.environ.get("PREFECT_UI_URL")
        return cls(url.rstrip("/").removesuffix("/api"), auth_string or None, ui_url)

    def request(self, method: str, path: str, body: object = None, timeout_s: float = 10.0) -> httpx.Response:
        """What it answers to a request for `path` below /api. Raises `httpx.TransportError` and `httpx.InvalidURL`.

        It answers 503 for what its clients may ask again, as while its SQLite is busy, and is asked again a few times.
        """
        user, _, password = (self.auth_string or "").partition(":")
        auth = httpx.BasicAuth(user, password) if self.auth_string else None
        address = f"{self.url}/api{path}"
        for pause in (*_PAUSES_S, None):
            response = httpx.request(method, address, json=body, auth=auth, timeout=timeout_s, trust_env=False)
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE or pause is None:
                break
            time.sleep(pause)
        return response

    def page_of(self, flow_run: str) -> str:
        """The address of a flow run in the UI, by its id."""
        return f"{self.ui_url or self.url}/runs/flow-run/{flow_run}"
