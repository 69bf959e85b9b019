"""Keeps secrets out of what is logged: values that are known to be secret, and texts that look like secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

_HIDDEN = "[secret]"
_SHORTEST = 6  # a shorter value, such as "1", would be hidden in texts that have nothing to do with it
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|AUTH|CREDENTIAL|WEBHOOK", re.IGNORECASE)
_PATTERNS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {_HIDDEN}"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), rf"\1:{_HIDDEN}@"),  # the password in an address
    (re.compile(r"\b(coevo_|sk-|hf_|whsec_|ghp_)[A-Za-z0-9_+/=-]{8,}"), rf"\1{_HIDDEN}"),
    # A setting such as `judge.key` is not meant, but API_KEY=… of an environment and "token": "…" of JSON are.
    (
        re.compile(
            r"""(?i)(?<![\w.-])((?:[\w-]*[_-])?(?:api)?(?:key|token|password|secret)["']?\s*[=:]\s*["']?)[^\s,;"']{6,}"""
        ),
        rf"\1{_HIDDEN}",
    ),
)

_PASSWORD_IN_ADDRESS = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_known = set[str]()


def hide(secrets: Iterable[str]) -> None:
    """Have `without_secrets` hide these values too, in this process from now on."""
    _known.update(secrets)


def without_secrets(text: str) -> str:
    """The text without the secrets of this process: those of its environment, those of `hide`, and what looks like a
    secret."""
    return redacted(text, [*secrets_in(os.environ), *_known])


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """The values of those environment variables whose names say that they are secret, of USER:PASSWORD the password
    too, and the passwords in the addresses of all variables."""
    values = [value for name, value in environment.items() if _SECRET_VARIABLE.search(name)]
    passwords = [password for value in environment.values() for password in _PASSWORD_IN_ADDRESS.findall(value)]
    return [*values, *passwords, *(value.partition(":")[2] for value in values)]


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `[secret]` in place of the `secrets`, and of what looks like a key, a token or a password."""
    longest_first = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=lambda s: (-len(s), s))
    if longest_first:
        text = re.sub("|".join(map(re.escape, longest_first)), _HIDDEN, text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
