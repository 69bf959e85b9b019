"""Alerts on their way to targets, such as a webhook or Prefect: at least once, in order of raising.

The alert's row is the outbox: it is committed with the iteration's figures, and a thread of `coevo api` sends it from
there, one for each target, so that one that does not answer holds up no other. An attempt is counted and the next one
put off before anything is sent, so that several API processes do not send the same at once; one that dies between
sending and noting it has it sent again, under the same id, by which a receiver tells that it has it already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import httpx
from sqlalchemy.exc import DBAPIError

from storage import queries
from storage.rows import AlertRow
from storage.session import Store

log = logging.getLogger(__name__)

ATTEMPTS = 16  # over ten hours
FIRST_SIGHT = timedelta(days=1)
TIMEOUT_S = 10.0  # of an attempt that is one request
# The first is longer than an attempt may take, so that nobody begins another meanwhile.
_PUT_OFF = [timedelta(seconds=min(3600, 30 * 2**attempt)) for attempt in range(ATTEMPTS)]
_POLL_S = 2.0
_ERROR_CHARS = 300
# They end an attempt, not the thread, which has other alerts to send. ValueError is of a figure that JSON does not
# have, of an answer that is not as documented and, as UnicodeError, of a host's name that DNS cannot have; OSError of
# certificates that are not where the environment says.
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError)


class Target(Protocol):
    """Where alerts are sent."""

    @property
    def name(self) -> str:
        """What the store calls it: what has arrived under this name is not sent again."""

    def send(self, alert: AlertRow) -> httpx.Response:
        """Try once; what was answered, 2xx where the alert has arrived. Raises `httpx.HTTPError`, `httpx.InvalidURL`,
        `ValueError`, `OSError`."""


@contextmanager
def delivering(store: Store, targets: Sequence[Target]) -> Iterator[None]:
    """Send alerts to each target from a thread of its own while the block runs."""
    over = threading.Event()

    def deliver(target: Target) -> None:
        while not over.is_set():
            try:
                while not over.is_set() and deliver_one(store, target):
                    pass
            except DBAPIError as error:  # the database may be back at the next look
                log.warning("alerts are not sent: the database did not answer: %s", error)
            over.wait(_POLL_S)

    threads = [
        threading.Thread(target=deliver, args=(target,), name=f"alerts to {target.name}", daemon=True)
        for target in targets
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(TIMEOUT_S)


def deliver_one(store: Store, target: Target) -> bool:
    """Try to send the oldest alert that waits for it; False where none does. What goes wrong is noted with the alert.

    Raises `DBAPIError`.
    """
    with store.read() as session:
        if not queries.alerts.delivery_due(session, target.name, most=ATTEMPTS, first_sight=FIRST_SIGHT):
            return False
    with store.write() as session:
        claimed = queries.alerts.claim_delivery(
            session, target.name, most=ATTEMPTS, first_sight=FIRST_SIGHT, put_off=_PUT_OFF
        )
    if claimed is None:  # another process was faster
        return False
    alert, _ = claimed
    error = _try(target, alert)
    with store.write() as session:
        if error is None:
            queries.alerts.mark_delivered(session, alert.id, target.name)
        else:
            queries.alerts.mark_failed(session, alert.id, target.name, error)
    return True


def _try(target: Target, alert: AlertRow) -> str | None:
    """What went wrong; None for an answer of 2xx."""
    try:
        answer = target.send(alert)
    except _FAILURES as error:
        return f"{type(error).__name__}: {error}"[:_ERROR_CHARS]
    return None if answer.is_success else f"HTTP {answer.status_code}"
