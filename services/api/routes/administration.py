"""API keys over REST, for administrators. `coevo store keys` does the same on the machine of the store."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from services.api.access.keys import new_key
from services.api.dependencies import StoreDependency
from services.api.problems import documented
from storage import queries
from storage.queries.keys import KEY_NAME
from storage.rows import KeyRow, Scope

router = APIRouter(prefix="/keys", tags=["keys"])

_NAME = f"^{KEY_NAME.pattern}$"


class KeyRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=_NAME, examples=["ann"], description="Who has the key. A name is used only once.")
    scopes: list[Scope] = Field(["read"], min_length=1, max_length=4, examples=[["read", "label"]])


class NewKey(BaseModel):
    name: str
    scopes: list[Scope]
    key: str = Field(description="Shown only in this response: the store has only its SHA-256.")


@router.get("")
def list_keys(store: StoreDependency) -> list[KeyRow]:
    """All keys, the oldest first, including revoked ones. The response does not contain the keys themselves."""
    with store.read() as session:
        return queries.keys.list_keys(session)


@router.post("", status_code=201, responses=documented(409))
def add_key(store: StoreDependency, body: KeyRequest) -> NewKey:
    """Make a key. It may have any scopes."""
    return NewKey(name=body.name, scopes=body.scopes, key=new_key(store, body.name, body.scopes))


@router.delete("/{key}", responses=documented(404))
def revoke_key(store: StoreDependency, key: Annotated[str, Path(pattern=_NAME, examples=["ann"])]) -> KeyRow:
    """Revoke a key. The key of this request may be revoked, too."""
    with store.write() as session:
        return queries.keys.revoke_key(session, key)
