"""The webhook that alerts are sent to, signed as Standard Webhooks has it (standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import time
from urllib.parse import urlsplit

import httpx

from core.errors import CoevoError
from services.drift.outbox import TIMEOUT_S
from storage.rows import AlertRow

_PREFIX = "whsec_"


class WebhookError(CoevoError):
    """A webhook's address or secret that cannot be used; never says the secret."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are sent, and the key that they are signed with."""

    url: str
    key: bytes

    @property
    def name(self) -> str:
        """What the store calls it: an address may hold a secret, so of it only the host and a hash."""
        return f"{urlsplit(self.url).hostname}#{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"

    def send(self, alert: AlertRow) -> httpx.Response:
        """Its `webhook-id` is the alert's id, at every attempt. Raises as `outbox.Target` has it."""
        body, now = body_of(alert), int(time())
        headers = {
            "content-type": "application/json",
            "webhook-id": alert.id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self.key, alert.id, now, body),
        }
        return httpx.post(self.url, content=body, headers=headers, timeout=TIMEOUT_S)


def webhook_from(environment: Mapping[str, str]) -> Webhook | None:
    """What `COEVO_WEBHOOK_URL` and `COEVO_WEBHOOK_SECRET` say; None without an address. Raises `WebhookError`."""
    url, secret = environment.get("COEVO_WEBHOOK_URL"), environment.get("COEVO_WEBHOOK_SECRET", "")
    if not url:
        return None
    if not _is_address(url):
        raise WebhookError("COEVO_WEBHOOK_URL: expected an http or https address")
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not 24 <= len(key) <= 64:
        raise WebhookError(f"COEVO_WEBHOOK_SECRET: expected {_PREFIX} and 24 to 64 bytes in base64")
    return Webhook(url, key)


def _is_address(url: str) -> bool:
    """What is wrong with it is not told: the parsers quote what may be a part of its password."""
    try:
        parts, _ = urlsplit(url), httpx.URL(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (httpx.InvalidURL, ValueError):  # ValueError: of urlsplit, or of a port above 65535
        return False


def signature(key: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """HMAC-SHA256 over `id.timestamp.body`, version 1, as the header has it."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def body_of(alert: AlertRow) -> bytes:
    """`{"type": "coevo.alert.raised", "timestamp": …, "data": the alert}`, the same at every attempt but for what was
    acknowledged meanwhile. Raises `ValueError` for a figure that is not finite."""
    data = {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in asdict(alert).items()}
    event = {"type": "coevo.alert.raised", "timestamp": alert.raised_at.isoformat(), "data": data}
    return json.dumps(event, allow_nan=False).encode()
