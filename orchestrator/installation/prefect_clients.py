"""Makes Prefect's clients patient."""

from __future__ import annotations

from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient


def retry_connecting() -> None:
    """Have all of Prefect's clients in this process repeat a request when no connection can be made, as often as
    PREFECT_CLIENT_MAX_RETRIES says.

    A client does so only once it has been connected. A flow makes many clients, and it would fail if Prefect was away
    when a new one sends its first request.
    """
    always = property(lambda _client: True, lambda _client, _connected: None)
    for kind in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
        type.__setattr__(kind, "_has_connected", always)
