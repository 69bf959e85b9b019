"""API keys: who may do what. A key is shown once, when it is made; the store has its SHA-256 only.

A key is 256 bits from the operating system, so nobody can guess it from its hash, and a slow hash would gain nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import HTTPException, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from storage import queries
from storage.rows import Scope
from storage.session import Store

_PREFIX = "coevo_"
_bearer = HTTPBearer(auto_error=False, description="A key that `coevo keys add` made")


def new_key(store: Store, name: str, scopes: Sequence[Scope]) -> str:
    """Make a key and say it. Raises `StoreError` when the name is none, or taken."""
    key = _PREFIX + secrets.token_urlsafe(32)
    with store.write() as session:
        queries.add_key(session, name=name, sha256=_hash(key), scopes=scopes)
    return key


def needs(scope: Scope) -> Callable[..., None]:
    """A route's dependency: a key with this scope, whose name is then the request's `state.key_name`."""

    def check(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> None:
        ask = {"WWW-Authenticate": "Bearer"}
        if credentials is None:
            raise HTTPException(401, "Authorization: expected `Bearer KEY`, got none", ask)
        store: Store = request.app.state.store
        with store.read() as session:
            key = queries.key_of(session, _hash(credentials.credentials))
        if key is None:
            raise HTTPException(401, "Authorization: this key is not known, or was revoked", ask)
        if scope not in key.scopes:
            has = ", ".join(key.scopes)
            raise HTTPException(403, f"Authorization: this needs the scope {scope}, the key has {has}")
        request.state.key_name = key.name

    return check


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
