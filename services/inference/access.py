"""The key of the inference applications, which is derived from Ray's token.

It differs from the token, because with Ray's token one can also run programs. `server/proxy.py` checks it.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from core.texts.redaction import hide

KEY, RAY_TOKEN = "COEVO_INFERENCE_KEY", "RAY_AUTH_TOKEN"


def key() -> str | None:
    """The key: the value of the environment variable `KEY` if it is set, else derived from Ray's token.

    The variable is for processes that do not know Ray's token. The result is None if Ray has no token; the applications
    then require no key.
    """
    if key_from_environment := os.environ.get(KEY):
        return key_from_environment
    if token := os.environ.get(RAY_TOKEN):
        hide([derived := key_of(token)])
        return derived
    return None


def key_of(ray_token: str) -> str:
    """The key of the applications on the Ray cluster with this token."""
    return hmac.new(ray_token.encode(), b"coevo inference", hashlib.sha256).hexdigest()


def headers() -> dict[str, str]:
    """The headers that a request to the applications needs."""
    return {"Authorization": f"Bearer {value}"} if (value := key()) else {}
