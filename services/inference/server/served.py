"""Which checkpoint a replica holds: what the orchestrator tells a Serve deployment in its `user_config`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

# What every fresh checkpoint is asked before others may ask it: a damaged one answers with what is not a number.
CANARY = "What is 1 + 1?"
CANARY_TOKENS = 8


class Served(BaseModel):
    """The checkpoint that a replica must hold."""

    model_config = ConfigDict(extra="forbid")

    checkpoint: str
    folder: Path
    sha256: str


class CanaryFailed(ValueError):
    """A checkpoint loads, but what it computes is not finite."""
