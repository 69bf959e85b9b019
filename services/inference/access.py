"""The key of the inference applications, which follows from Ray's token.

It is a key of its own because Ray's token also lets its owner run programs. `proxy.py` asks for it.
"""

from __future__ import annotations

import hashlib
import hmac
import os

KEY = "COEVO_INFERENCE_KEY"


def key() -> str | None:
    """What the variable KEY holds, for a process that does not know Ray's token, or what follows from that.

    None where Ray has no token: then nobody is asked for a key.
    """
    if given := os.environ.get(KEY):
        return given
    token = os.environ.get("RAY_AUTH_TOKEN")
    return key_of(token) if token else None


def key_of(ray_token: str) -> str:
    """The key of the applications on the Ray that has this token."""
    return hmac.new(ray_token.encode(), b"coevo inference", hashlib.sha256).hexdigest()


def headers() -> dict[str, str]:
    """What a request to the applications carries."""
    return {"Authorization": f"Bearer {value}"} if (value := key()) else {}
