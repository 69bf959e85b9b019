"""Delivers alerts to targets, such as a webhook or Prefect: at least once, in the order in which they were raised.

The table of alerts is the outbox. An alert's row is committed with the iteration's figures, and threads of `coevo api`
send it from there. Each target has a thread of its own, so that a target that does not answer delays no other target.

An attempt is counted, and the next attempt is postponed, before anything is sent. So several API processes do not send
the same alert at once. If a process dies after it has sent an alert and before it has recorded this, the alert is sent
again. It has the same id, so the receiver can recognise it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import httpx

from core.redaction import without_secrets
from storage import queries
from storage.rows import AlertRow
from storage.session import DATABASE_ERRORS, Store

log = logging.getLogger(__name__)

ATTEMPTS = 16  # over ten hours
LOOKBACK = timedelta(days=1)  # a new target gets the alerts of this time
TIMEOUT_S = 10.0  # of an attempt that takes one request
# Time until the next attempt. The first is longer than an attempt should take, so that attempts do not overlap.
_DELAYS = [timedelta(seconds=min(3600, 30 * 2**attempt)) for attempt in range(ATTEMPTS)]
_POLL_S = 2.0
_ERROR_CHARS = 300


class Target(Protocol):
    """A receiver of alerts."""

    @property
    def name(self) -> str:
        """The target's name in the store. An alert that has been delivered to a name is not sent to it again."""

    def send(self, alert: AlertRow) -> httpx.Response:
        """Try once, and return the response, which is 2xx if the alert has arrived. An error ends this attempt only."""


@contextmanager
def delivering(store: Store, targets: Sequence[Target]) -> Iterator[None]:
    """Send alerts to each target from a thread of its own while the block runs."""
    stop = threading.Event()

    def deliver(target: Target) -> None:
        while not stop.is_set():
            try:
                while not stop.is_set() and deliver_one(store, target):
                    pass
            except DATABASE_ERRORS as error:  # the database may answer at the next poll
                log.warning("alerts to %s are not sent, because the database did not answer: %s", target.name, error)
            stop.wait(_POLL_S)

    threads = [
        threading.Thread(target=deliver, args=(target,), name=f"alerts to {target.name}", daemon=True)
        for target in targets
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT_S)


def deliver_one(store: Store, target: Target) -> bool:
    """Try to send the oldest alert that waits for the target; return False if none waits.

    If the attempt fails, the reason is stored with the delivery. Raises one of `DATABASE_ERRORS`.
    """
    with store.read() as session:
        if not queries.alerts.delivery_due(session, target.name, max_attempts=ATTEMPTS, lookback=LOOKBACK):
            return False
    with store.write() as session:
        claimed = queries.alerts.claim_delivery(
            session, target.name, max_attempts=ATTEMPTS, lookback=LOOKBACK, delays=_DELAYS
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
    """Send an alert, and return why this failed; None if the response is 2xx."""
    try:
        response = target.send(alert)
    except Exception as error:  # noqa: BLE001 (whatever it is, the other alerts are still to be sent)
        return without_secrets(f"{type(error).__name__}: {error}")[:_ERROR_CHARS]
    return None if response.is_success else f"HTTP {response.status_code}"
