"""Keeps secrets out of what is logged: values that are known to be secret, and texts that look like secrets."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

_HIDDEN = "[secret]"
_SHORTEST = 6  # a shorter value, such as "1", would be hidden in texts that have nothing to do with it
# A part of a variable's name between underscores that says that the value is secret, and what the value is instead if
# the name ends so, as in SSH_AUTH_SOCK. The address of a webhook is itself a secret.
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:API)?(?:KEYS?|AUTH|CREDENTIALS?|PAT|PASS|PWD|WEBHOOKS?|[A-Z]*(?:TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE))"
    r"(?:_|$)",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(
    r"^(?:OLD)?PWD$|_(?:SOCK|FILE|PATH|DIR|MODE|TYPE|METHOD|NAME|USER|ENABLED|VARIABLE)$", re.IGNORECASE
)
_WORD = r"[A-Za-z0-9._~+/=%-]"  # of what a secret consists
_NAME = (  # of a secret, in a setting, a header or JSON
    r"(?:[\w-]*[_-])?(?:password|passwd|passphrase|secret|(?:api|access|secret|private|auth|account)[_-]?key"
    r"|(?:api|access|auth|bearer|refresh|session|id)[_-]?token)"
)
_PATTERNS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(://[^/\s:@]*):[^/\s]+@", rf"\1:{_HIDDEN}@"),  # the password in an address
        # Authorization, as a header and in JSON; in a sentence of ours an ordinary word comes after it.
        (
            rf"""(?i)(\bauthorization["']?\s*[:=]\s*["']?(?:bearer|basic|token|digest)\s+){_WORD}{{6,}}""",
            rf"\1{_HIDDEN}",
        ),
        (r"""(?i)(["']authorization["']\s*:\s*["'])(?!(?:bearer|basic|token|digest) )[^"'\s]{6,}""", rf"\1{_HIDDEN}"),
        (rf"""(?i)(\bauthorization\s*[:=]\s*)(?=[^\s\d]{{0,99}}\d){_WORD}{{16,}}""", rf"\1{_HIDDEN}"),
        (rf"(?i)\b(bearer|basic)\s+(?=[^\s\d]{{0,99}}\d){_WORD}{{16,}}", rf"\1 {_HIDDEN}"),
        # Keys and tokens of known services, by how they begin.
        (r"\bsk-(?:(?:proj|ant|or|svcacct|admin|live|test)-[\w-]{16,}|[A-Za-z0-9]{20,})", f"sk-{_HIDDEN}"),
        (r"\b(hf_)(?:[A-Za-z0-9]{20,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{16,})", rf"\1{_HIDDEN}"),
        (r"\b(coevo_)(?=[A-Za-z_-]{0,42}\d)[\w-]{12,}", rf"\1{_HIDDEN}"),
        (r"\b(whsec_|gh[opsur]_|npm_|gsk_|r8_|[rs]k_(?:live|test)_)[A-Za-z0-9+/=]{8,}", rf"\1{_HIDDEN}"),
        (r"\b(github_pat_|glpat-|nvapi-|pypi-|AIza)[\w-]{16,}", rf"\1{_HIDDEN}"),
        (r"\b(xox[a-z]-|xapp-)[A-Za-z0-9-]{10,}", rf"\1{_HIDDEN}"),
        (r"\b(AKIA|ASIA)[A-Z0-9]{16}\b", rf"\1{_HIDDEN}"),
        (r"\beyJ[\w-]{8,2000}\.[\w-]{4,}\.[\w-]*", _HIDDEN),  # a JSON web token
        (
            r"(?i)(\bhooks\.slack\.com/\w+/|\bdiscord(?:app)?\.com/api/webhooks/|\bwebhook\.office\.com/)\S+",
            rf"\1{_HIDDEN}",
        ),
        (r"(\bapi\.telegram\.org/bot)[\w:-]+", rf"\1{_HIDDEN}"),
        # A setting such as `judge.password` is not meant, but API_KEY=… of an environment and "token": "…" of JSON are.
        (rf"""(?i)(?<![\w.-])({_NAME}["']?\s*[=:]\s*["']?)(?!expected\b)[^\s,;"']{{6,}}""", rf"\1{_HIDDEN}"),
        (r"""(?i)(["'](?:[\w-]*[_-])?token["']\s*:\s*["'])[^\s,;"']{6,}""", rf"\1{_HIDDEN}"),
        (r"(?i)(?<![\w.-])((?:[\w-]*[_-])?token=)(?=[^\s\d]{0,99}\d)[^\s,;&\"']{8,}", rf"\1{_HIDDEN}"),
        (r"\b([A-Z0-9_]*_(?:KEY|TOKEN|AUTH|AUTH_STRING)=)[^\s,;\"']{6,}", rf"\1{_HIDDEN}"),
    )
)
_LOGIN_IN_ADDRESS = re.compile(r"://([^/\s:@]*:[^/\s]+)@")
_known = set[str]()


def hide(secrets: Iterable[str]) -> None:
    """Have `without_secrets` hide these values too, in this process from now on."""
    _known.update(secrets)


def without_secrets(text: str) -> str:
    """The text without the secrets of this process: those of its environment, those of `hide`, and what looks like a
    secret."""
    return redacted(text, [*secrets_in(os.environ), *_known])


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """The values of those environment variables whose names say that they are secret, and USER:PASSWORD in the
    addresses of all variables."""
    values = [
        value for name, value in environment.items() if _SECRET_VARIABLE.search(name) and not _NOT_SECRET.search(name)
    ]
    return [*values, *(login for value in environment.values() for login in _LOGIN_IN_ADDRESS.findall(value))]


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `[secret]` in place of the `secrets`, and of what looks like a key, a token or a password.

    Of USER:PASSWORD the password is hidden by itself too, and so is what HTTP makes of both; of each secret, what is
    written in a URL.
    """
    forms = set[str]()
    for secret in secrets:
        _, colon, password = secret.partition(":")
        for value in (secret, password) if colon else (secret,):
            forms |= {value, quote(value, safe=""), quote(value)}
        if colon:
            forms.add(base64.b64encode(secret.encode()).decode())
    longest_first = sorted((form for form in forms if len(form) >= _SHORTEST), key=lambda form: (-len(form), form))
    if longest_first:
        text = re.sub("|".join(map(re.escape, longest_first)), _HIDDEN, text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
