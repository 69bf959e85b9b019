"""What every part of a configuration shares: unknown keys are refused, nothing changes once it is read, and each number
has bounds.

The bounds are generous: no machine could do more. They are for a slip of the hand. A run that asks for 10^12 questions
would fail only after it had begun, and take others' memory with it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0, le=10_000_000)]  # rows, steps, and what else is counted
Iterations = Annotated[int, Field(gt=0, le=10_000)]
Workers = Annotated[int, Field(gt=0, le=1_024)]  # processes, nodes, GPUs
Answers = Annotated[int, Field(gt=0, le=1_024)]  # to one prompt; what one request to a service may ask for
Tokens = Annotated[int, Field(gt=0, le=1_000_000)]  # of one answer
Attempts = Annotated[int, Field(gt=0, le=1_000)]  # after a growing pause each
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # what the store holds
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Temperature = Annotated[float, Field(ge=0, le=10)]
LearningRate = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(ge=0, le=1_000_000)]  # coefficients, weights and thresholds
Scale = Annotated[float, Field(gt=0, le=1_000_000)]  # the same where 0 has no meaning


class Part(BaseModel):
    """A table of the TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)
