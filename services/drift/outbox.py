"""Delivers alerts to the webhook: at least once, in the order in which they were raised.

The table of alerts is the outbox. An alert's row is committed with the iteration's figures, and a thread of
`coevo store serve` sends it from there.

An attempt is counted, and the next attempt is postponed, before anything is sent. So several API processes do not send
the same alert at once. If a process dies after it has sent an alert and before it has recorded this, the alert is sent
again. It has the same id, so the receiver can recognise it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from core.texts.redaction import without_secrets
from services.drift.webhook import TIMEOUT_S, Webhook
from storage import queries
from storage.session import DATABASE_ERRORS, Store

log = logging.getLogger(__name__)

ATTEMPTS = 16  # over ten hours
LOOKBACK = timedelta(days=1)  # a new address gets the alerts of this time
# Time until the next attempt. The first is longer than an attempt should take, so that attempts do not overlap.
_DELAYS = [timedelta(seconds=min(3600, 30 * 2**attempt)) for attempt in range(ATTEMPTS)]
_POLL_S = 2.0
_ERROR_CHARS = 300


@contextmanager
def delivering(store: Store, webhook: Webhook | None) -> Iterator[None]:
    """Send alerts to the webhook, if there is one, from a thread while the block runs."""
    if webhook is None:
        yield
        return
    stop = threading.Event()

    def deliver() -> None:
        while not stop.is_set():
            try:
                while not stop.is_set() and deliver_one(store, webhook):
                    pass
            except DATABASE_ERRORS as error:  # the database may answer at the next poll
                log.warning("alerts to %s are not sent, because the database did not answer: %s", webhook.name, error)
            stop.wait(_POLL_S)

    thread = threading.Thread(target=deliver, name=f"alerts to {webhook.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT_S)


def deliver_one(store: Store, webhook: Webhook) -> bool:
    """Try to send the oldest alert that waits for the webhook; return False if none waits.

    If the attempt fails, the reason is stored with the delivery. Raises one of `DATABASE_ERRORS`.
    """
    with store.read() as session:
        if not queries.alerts.delivery_due(session, webhook.name, max_attempts=ATTEMPTS, lookback=LOOKBACK):
            return False
    with store.write() as session:
        claimed = queries.alerts.claim_delivery(
            session, webhook.name, max_attempts=ATTEMPTS, lookback=LOOKBACK, delays=_DELAYS
        )
    if claimed is None:  # another process was faster
        return False
    alert, _ = claimed
    try:
        response = webhook.send(alert)
        error = None if response.is_success else f"HTTP {response.status_code}"
    except Exception as failure:  # noqa: BLE001 (whatever it is, the other alerts are still to be sent)
        error = without_secrets(f"{type(failure).__name__}: {failure}")[:_ERROR_CHARS]
    with store.write() as session:
        if error is None:
            queries.alerts.mark_delivered(session, alert.id, webhook.name)
        else:
            queries.alerts.mark_failed(session, alert.id, webhook.name, error)
    return True
