"""API keys, by their hash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.errors import NotThere, StoreError
from storage.models import ApiKeys
from storage.queries.tables import columns, table_of
from storage.rows import KeyRow, Scope


def add_key(session: Session, *, name: str, sha256: str, scopes: Sequence[Scope]) -> None:
    """Raises `StoreError` when the name is taken, by a revoked key too."""
    row = {"name": name, "sha256": sha256, "scopes": list(scopes), "created_at": datetime.now(UTC), "revoked_at": None}
    try:
        session.execute(table_of(ApiKeys).insert().values(row))
    except IntegrityError as error:
        raise StoreError(f"key {name!r}: there is one of this name already") from error


def list_keys(session: Session) -> list[KeyRow]:
    """All keys, the oldest first, without their hashes."""
    found = session.execute(select(*columns(ApiKeys, KeyRow)).order_by(ApiKeys.created_at, ApiKeys.name))
    return [KeyRow(*row) for row in found]


def revoke_key(session: Session, name: str) -> None:
    """From now on it is not known. Raises `NotThere`."""
    known = [ApiKeys.name == name, ApiKeys.revoked_at.is_(None)]
    changed = update(table_of(ApiKeys)).where(*known).values(revoked_at=datetime.now(UTC)).returning(ApiKeys.name)
    if session.execute(changed).one_or_none() is None:
        raise NotThere(f"key {name!r}: there is none of this name that is in use")


def scopes_of(session: Session, sha256: str) -> tuple[Scope, ...] | None:
    """What the key of this hash may do; None when it is not known or was revoked."""
    found = session.scalar(select(ApiKeys.scopes).where(ApiKeys.sha256 == sha256, ApiKeys.revoked_at.is_(None)))
    return None if found is None else tuple(cast(list[Scope], found))
