"""How rows show a seed."""

from __future__ import annotations

from typing import Annotated

from pydantic import PlainSerializer

# A seed has up to 63 bits. In JSON it is a string, since the numbers of JavaScript, and of other readers, have 53.
Seed = Annotated[int, PlainSerializer(str, when_used="json")]
