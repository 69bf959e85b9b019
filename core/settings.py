"""What every part of a configuration shares: unknown keys are refused, and nothing changes once it is read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]


class Part(BaseModel):
    """A table of the TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)
