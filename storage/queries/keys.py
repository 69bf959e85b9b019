"""API keys. The store has only their hashes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.errors import NotThere, StoreError
from storage.models import ApiKeys
from storage.queries.tables import columns, find_row, find_rows, table_of
from storage.rows import KeyRow, Scope

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,59}")


def add_key(session: Session, *, name: str, sha256: str, scopes: Sequence[Scope]) -> None:
    """Store a key. Raises `StoreError` when the name is not valid, or when a key has it already, even a revoked one."""
    if not KEY_NAME.fullmatch(name):
        raise StoreError(f"key {name!r}: expected up to 60 letters, digits and _ . @ + -, first a letter or digit")
    row = {"name": name, "sha256": sha256, "scopes": list(scopes), "created_at": datetime.now(UTC), "revoked_at": None}
    try:
        session.execute(table_of(ApiKeys).insert().values(row))
    except IntegrityError as error:
        raise StoreError(f"key {name!r}: a key of this name exists already; choose another name") from error


def list_keys(session: Session) -> list[KeyRow]:
    """All keys, the oldest first, without their hashes."""
    return find_rows(session, ApiKeys, KeyRow, order=[ApiKeys.created_at, ApiKeys.name])


def revoke_key(session: Session, name: str) -> KeyRow:
    """Revoke a key that is in use, and return it. Raises `NotThere`."""
    active = [ApiKeys.name == name, ApiKeys.revoked_at.is_(None)]
    changed = update(table_of(ApiKeys)).where(*active).values(revoked_at=datetime.now(UTC))
    row = session.execute(changed.returning(*columns(ApiKeys, KeyRow))).one_or_none()
    if row is None:
        raise NotThere(f"key {name!r}: no key of this name is in use")
    return KeyRow(*row)


def key_of(session: Session, sha256: str) -> KeyRow | None:
    """The key with this hash; None if there is none, or if it was revoked."""
    active = [ApiKeys.sha256 == sha256, ApiKeys.revoked_at.is_(None)]
    return find_row(session, ApiKeys, KeyRow, *active)
