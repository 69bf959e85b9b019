"""Sends alerts to a webhook, signed as Standard Webhooks specifies (standardwebhooks.com)."""

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
from storage.rows import AlertRow

TIMEOUT_S = 10.0  # of an attempt
_PREFIX = "whsec_"


class WebhookError(CoevoError):
    """The address or the secret of a webhook is not valid. The message never contains the secret."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are sent, and the key that they are signed with."""

    url: str
    key: bytes

    @property
    def name(self) -> str:
        """Host and hash of the address. The address itself may contain a secret, so the store does not have it. An
        alert that has been delivered to a name is not sent to it again."""
        return f"{urlsplit(self.url).hostname}#{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"

    def send(self, alert: AlertRow) -> httpx.Response:
        """Post the alert. Its id is the `webhook-id` of every attempt. The response's body, which may have no end, is
        not read. An error ends this attempt only."""
        body, now = body_of(alert), int(time())
        headers = {
            "content-type": "application/json",
            "webhook-id": alert.id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self.key, alert.id, now, body),
        }
        with httpx.stream("POST", self.url, content=body, headers=headers, timeout=TIMEOUT_S) as response:
            return response


def webhook_from(environment: Mapping[str, str]) -> Webhook | None:
    """The webhook of `COEVO_WEBHOOK_URL` and `COEVO_WEBHOOK_SECRET`; None without a URL. Raises `WebhookError`."""
    url, secret = environment.get("COEVO_WEBHOOK_URL"), environment.get("COEVO_WEBHOOK_SECRET", "")
    if not url:
        return None
    try:
        parts, _ = urlsplit(url), httpx.URL(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (httpx.InvalidURL, ValueError):  # ValueError: from urlsplit, or for a port above 65535
        is_valid = False
    if not is_valid:  # the reason is not reported, because the parsers may quote a part of a password
        raise WebhookError("COEVO_WEBHOOK_URL: expected an http or https address")
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not 24 <= len(key) <= 64:
        raise WebhookError(f"COEVO_WEBHOOK_SECRET: expected {_PREFIX} and 24 to 64 bytes in base64")
    return Webhook(url, key)


def signature(key: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature`: version 1, HMAC-SHA256 over `id.timestamp.body`."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def body_of(alert: AlertRow) -> bytes:
    """`{"type": "coevo.alert.raised", "timestamp": …, "data": the alert}`. It is the same at every attempt, unless the
    alert was acknowledged meanwhile. Raises `ValueError` for a figure that is not finite."""
    data = {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in asdict(alert).items()}
    event = {"type": "coevo.alert.raised", "timestamp": alert.raised_at.isoformat(), "data": data}
    return json.dumps(event, allow_nan=False).encode()
