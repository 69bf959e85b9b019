"""What all parts of a configuration have in common: unknown keys are refused, values are frozen, and every number has
bounds.

The bounds are larger than what any machine can do; they catch typing errors. Without them, a run that asks for 10^12
questions would fail only after it has started, and would use up memory that other processes need.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0, le=10_000_000)]  # rows, steps and other counts
Count = Annotated[int, Field(ge=0, le=10_000_000)]  # like Positive, but there may be none
MOST_ITERATIONS = 10_000
Iterations = Annotated[int, Field(gt=0, le=MOST_ITERATIONS)]
Workers = Annotated[int, Field(gt=0, le=1_024)]  # processes, nodes, GPUs, requests at the same time
Answers = Annotated[int, Field(gt=0, le=1_024)]  # answers to one prompt, which one request to a service may ask for
Tokens = Annotated[int, Field(gt=0, le=1_000_000)]  # tokens of one answer, or characters of a question
Attempts = Annotated[int, Field(gt=0, le=1_000)]  # attempts, with a growing pause before each further one
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # the range that the store can hold
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Decay = Annotated[float, Field(ge=0, lt=1)]  # the weight that a running mean gives to its past
Temperature = Annotated[float, Field(ge=0, le=10)]
TopP = Annotated[float, Field(gt=0, le=1)]  # sample among the most likely tokens with this share of the probability
LearningRate = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(ge=0, le=1_000_000)]  # coefficients, weights and thresholds
Scale = Annotated[float, Field(gt=0, le=1_000_000)]  # like Factor, where 0 has no meaning


class Part(BaseModel):
    """A table of a preset's TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)
