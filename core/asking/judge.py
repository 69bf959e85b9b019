"""How a language model is asked whether answers are right."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from core.asking.service import Service
from core.judging.replies import JudgePrompt
from core.validation.bounds import Answers, Temperature

_Temperature = Annotated[Temperature | None, BeforeValidator(lambda value: None if value == "none" else value)]
_LONGEST_NAME = 34  # with `judge_` before it 40 characters, the most that an oracle's name may have


def judge_name(model: str, prompt: str) -> str:
    """A name made from model and prompt, so that their verdicts are kept apart: `gpt_4o`, `gpt_4o_equivalence`."""
    suffix = "" if prompt == "annotate" else f"_{prompt}"
    plain = re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_") or "model"
    return plain[: _LONGEST_NAME - len(suffix)] + suffix


class Judge(Service):
    """An OpenAI-compatible language model that judges pseudo-labels (`core.judging.replies`; docs/audits.md)."""

    # The oracle is `judge_<name>`; None: `judge`.
    name: str | None = Field(None, pattern=rf"^[a-z0-9_]{{1,{_LONGEST_NAME}}}$")
    prompt: JudgePrompt = "annotate"
    samples: Answers = 1  # replies per question; more than half of them must agree
    temperature: _Temperature = 0.1  # R-Zero E.3; None: not sent, for a service that refuses it

    max_tokens: ClassVar[int] = 4096  # as many as `timeout` leaves time for
    concurrency: ClassVar[int] = 16  # requests at the same time; a service that limits their rate has them repeated
    attempts: ClassVar[int] = 8  # per request; many, since a service may limit the rate of requests
    batch: ClassVar[int] = 64  # questions whose labels are stored together or not at all: at most so many are lost
    # Questions with known verdicts, added to each batch, of which this share must be right: a judge that is right nine
    # times in ten loses a fifth of its batches (docs/audits.md).
    sentinels: ClassVar[int] = 8
    sentinel_accuracy: ClassVar[float] = 0.8
    batch_attempts: ClassVar[int] = 3  # how often a batch is asked; that judge then fails with 0.7% of them

    @property
    def oracle(self) -> str:
        """The name of the oracle under which its labels are stored."""
        return "judge" if self.name is None else f"judge_{self.name}"

    @model_validator(mode="after")
    def _samples_differ(self) -> Judge:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(f"temperature: expected more than 0, since samples is {self.samples}, got 0")
        return self
