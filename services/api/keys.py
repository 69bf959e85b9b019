"""API keys: who may do what. A key is shown once, when it is made; the store has its SHA-256 only.

A key is 256 bits from the operating system, so nobody can guess it from its hash, and a slow hash would gain nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, get_args

from fastapi import HTTPException, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from storage import queries
from storage.errors import StoreError
from storage.rows import Scope
from storage.session import Store

_PREFIX = "coevo_"
_HOME = "home-"  # begins the names of keys that are no person's
_bearer = HTTPBearer(auto_error=False, description="A key that `coevo keys add` made")


def new_key(store: Store, name: str, scopes: Sequence[Scope]) -> str:
    """Make a key and say it. Raises `StoreError` when the name is none, or taken."""
    key = _PREFIX + secrets.token_urlsafe(32)
    with store.write() as session:
        queries.keys.add_key(session, name=name, sha256=_hash(key), scopes=scopes)
    return key


def accept_home_key(store: Store, key: str) -> None:
    """Let a home's own key in, with every scope. It is no person's: whoever labels with it says who he is.

    Raises `StoreError` where it was revoked.
    """
    sha256 = _hash(key)
    name = f"{_HOME}{sha256[:8]}"
    with store.write() as session:
        if queries.keys.key_of(session, sha256) is not None:
            return
        try:
            queries.keys.add_key(session, name=name, sha256=sha256, scopes=get_args(Scope))
        except StoreError as error:
            raise StoreError(f"key {name}: it was revoked, and so it lets nobody in") from error


def needs(scope: Scope) -> Callable[..., None]:
    """A route's dependency: a key with this scope. A person's is then named in the request's `state.key_name`."""

    def check(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> None:
        ask = {"WWW-Authenticate": "Bearer"}
        if credentials is None:
            raise HTTPException(401, "Authorization: expected `Bearer KEY`, got none", ask)
        store: Store = request.app.state.store
        with store.read() as session:
            key = queries.keys.key_of(session, _hash(credentials.credentials))
        if key is None:
            raise HTTPException(401, "Authorization: this key is not known, or was revoked", ask)
        if scope not in key.scopes:
            has = ", ".join(key.scopes)
            raise HTTPException(403, f"Authorization: this needs the scope {scope}, the key has {has}")
        if not key.name.startswith(_HOME):
            request.state.key_name = key.name

    return check


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
