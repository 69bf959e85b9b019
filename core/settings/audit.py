"""Who says whether a pseudo-label is right: a preset's `[audit]` and `[audit.judge]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from core.judging.replies import JudgePrompt
from core.settings.bounds import Answers, Attempts, Part, Positive, Share, Temperature, Tokens, Workers
from core.settings.serving import Service

Oracle = Annotated[
    Literal["exact", "given", "judge"] | None, BeforeValidator(lambda given: None if given == "none" else given)
]


class Judge(Service):
    """An OpenAI-compatible language model that judges pseudo-labels (`core.judging.replies`; docs/judge.md)."""

    name: str | None = Field(None, pattern=r"^[a-z0-9_]{1,34}$")  # its labels are `judge_<name>`'s; None: `judge`'s
    prompt: JudgePrompt = "annotate"
    samples: Answers = 1  # replies a question; more than half of them must agree
    temperature: Temperature = 0.1  # R-Zero E.3
    max_tokens: Tokens = 4096
    attempts: Attempts = 8  # of one request: a service that limits rates needs patience
    concurrency: Workers = 16  # requests under way at once
    batch: Positive = 64  # questions that are stored together, or not at all
    sentinels: Answers = 8  # of known verdict, put among those
    sentinel_accuracy: Share = 0.8  # a batch with a lower share of them right is thrown away
    batch_attempts: Attempts = 3  # as often is such a batch asked

    @property
    def oracle(self) -> str:
        """What its labels are stored under."""
        return "judge" if self.name is None else f"judge_{self.name}"

    @model_validator(mode="after")
    def _samples_differ(self) -> Judge:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(f"temperature: expected more than 0, since samples is {self.samples}, got 0")
        return self


class Audit(Part):
    """`exact`, a program for the tiny world, and `given`, the answers that came with the prompts, grade all
    pseudo-labels; `judge`, a language model, all or a sample. TOML's word for nobody is `none`."""

    oracle: Oracle = "exact"
    sample: Positive | None = None  # how many an iteration, of a judge; None: all
    judge: Judge | None = None

    @property
    def label(self) -> str | None:
        """What the oracle's labels are stored under."""
        return self.judge.oracle if self.oracle == "judge" and self.judge else self.oracle

    @property
    def services(self) -> list[Service]:
        """Those that the audit asks."""
        return [self.judge] if self.judge is not None else []

    @model_validator(mode="after")
    def _a_judge_where_one_judges(self) -> Audit:
        if self.oracle == "judge" and self.judge is None:
            raise ValueError("judge: expected a table with url and model, since oracle is 'judge'; got none")
        if self.oracle != "judge" and self.judge is not None:
            raise ValueError(f"judge: belongs to oracle = 'judge', got oracle = {self.oracle!r}")
        if self.oracle != "judge" and self.sample is not None:
            raise ValueError(f"sample: belongs to oracle = 'judge', got oracle = {self.oracle!r}, which grades all")
        return self
