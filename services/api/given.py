"""What routes take: parts of paths, and a transaction to read in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from sqlalchemy.orm import Session

from services.api.pages import LARGEST_PAGE

_LARGEST = 2**31 - 1


def _reading(request: Request) -> Iterator[Session]:
    with request.app.state.store.read() as session:
        yield session


Reading = Annotated[Session, Depends(_reading)]
RunName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["demo"])]
Iteration = Annotated[int, Path(ge=0, le=_LARGEST, examples=[1])]
Index = Annotated[int, Path(ge=0, le=_LARGEST, examples=[42])]
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Entries a page.")]
After = Annotated[str | None, Query(max_length=200, description="`next` of the page before.")]
