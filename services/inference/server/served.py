"""The checkpoint that a replica must hold, which the orchestrator sends to a Serve deployment as its `user_config`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

# The prompt that every new checkpoint must answer before it gets requests. A damaged one computes NaN or infinity.
# It has no system message, which some chat templates refuse.
CANARY = [{"role": "user", "content": "What is 1 + 1?"}]
CANARY_TOKENS = 8


class Served(BaseModel):
    """The checkpoint that a replica must hold."""

    model_config = ConfigDict(extra="forbid")

    checkpoint: str
    folder: Path
    sha256: str
    # Whether a replica compares every byte with the manifest. A training that samples by an application has just
    # written its weights and computed their digest, and takes them away after the next step.
    published: bool = True


class CanaryFailed(ValueError):
    """Raised when a checkpoint can be loaded, but its answer to the canary prompt is not finite."""
