"""API keys and what they allow. A key is shown once, when it is made; the store has only its SHA-256.

A key is 256 random bits from the operating system, so it cannot be guessed from its hash, and needs no slow hash.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, get_args

from fastapi import HTTPException, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from services.api.problems import invalid
from storage import queries
from storage.errors import StoreError
from storage.rows import Scope
from storage.session import Store

_PREFIX = "coevo_"
_HOME = "home-"  # the names of homes' own keys, which belong to no person, begin with it
# A person's name in a request, in a field `by` or `annotator`.
PERSON = r"^[^\x00-\x1f\x7f]{1,100}$"
OF_KEY = "It is ignored if the request has a person's key: then it is the name of the key."
_bearer = HTTPBearer(auto_error=False, description="A key that `coevo store keys add` made")


def new_key(store: Store, name: str, scopes: Sequence[Scope]) -> str:
    """Make a key, store its hash, and return it. Raises `StoreError` when the name is not valid, or is taken."""
    if name.lower().startswith(_HOME):
        raise StoreError(f"key {name!r}: expected a name that does not begin with {_HOME}: such are the keys of homes")
    key = _PREFIX + secrets.token_urlsafe(32)
    with store.write() as session:
        queries.keys.add_key(session, name=name, sha256=_hash(key), scopes=scopes)
    return key


def accept_home_key(store: Store, key: str) -> None:
    """Register the key of a coevo home, with every scope. It belongs to no person, so whoever labels with it must give
    a name. Raises `StoreError` if the key was revoked."""
    sha256 = _hash(key)
    name = _name_of_home(sha256)
    with store.write() as session:
        if queries.keys.key_of(session, sha256) is not None:
            return
        try:
            queries.keys.add_key(session, name=name, sha256=sha256, scopes=get_args(Scope))
        except StoreError as error:
            raise StoreError(f"key {name}: it was revoked, so the API does not accept it") from error


def needs(scope: Scope) -> Callable[..., None]:
    """A dependency of routes that need a key with this scope. If the key belongs to a person, the request's
    `state.key_name` is the name of the key."""

    def check(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> None:
        challenge = {"WWW-Authenticate": "Bearer"}
        if credentials is None:
            raise HTTPException(401, "Authorization: expected `Bearer KEY`, got none", challenge)
        store: Store = request.app.state.store
        with store.read() as session:
            key = queries.keys.key_of(session, sha256 := _hash(credentials.credentials))
        if key is None:
            raise HTTPException(401, "Authorization: this key is unknown or was revoked", challenge)
        if scope not in key.scopes:
            scopes = ", ".join(key.scopes)
            raise HTTPException(403, f"Authorization: this route needs the scope {scope}, the key has {scopes}")
        if key.name != _name_of_home(sha256):
            request.state.key_name = key.name

    return check


def person(request: Request, name: str | None, field: str, where: str = "body") -> str:
    """Who asks: the person of the request's key, else `name`, which is the `field` of the request's body or query.

    Raises `RequestValidationError` if there is neither.
    """
    person: str | None = getattr(request.state, "key_name", name)
    if person is None:
        raise invalid(field, "expected a name, because the request has no person's key; got none", where)
    return person


def _name_of_home(sha256: str) -> str:
    """The name of a home's own key. Nobody can choose it for another key, whose hash is not known before it is made."""
    return f"{_HOME}{sha256[:8]}"


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
