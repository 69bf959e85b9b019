"""The settings of a given prompt set: a preset's `[prompts]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from core.types import TINY_BASES
from core.validation.bounds import Positive, SettingsTable


class Prompts(SettingsTable):
    """A given prompt set, as used by the papers that train no Challenger (`self_train`).

    `file` is a file or a folder with questions (docs/extending.md); or a tiny base's name, "micro" or "micro-long", for
    questions like those that it was trained on; or "benchmark" for the evaluation's own questions with their answers
    hidden (test-time training: SRT 4.2, TTRL). `labels` says which label comes with a question, for methods that do not
    vote anew: "given" is that of the answer column, "offline" is the vote of the model that training starts from (SRT
    5.2).
    """

    file: str
    question: str = "problem"  # the name of a column, or of a part of one: "extra_info.question"
    answer: str | None = None  # likewise; the reward reads it only with labels = "given"
    labels: Literal["none", "given", "offline"] = "none"
    limit: Positive | None = None  # use the first so many of a file; for a tiny base, draw so many
    easiest: float = Field(1.0, gt=0, le=1)  # train on this share, the easiest questions (SRT 5.3)
    easiest_by: Literal["majority", "pass_rate"] = "majority"  # frequency of the majority answer, or of the true one

    @property
    def voted(self) -> bool:
        """Whether the starting model votes on all questions before training."""
        return self.labels == "offline" or self.easiest < 1

    @property
    def truths_known(self) -> bool:
        """Whether each question comes with its true answer."""
        return self.answer is not None or self.file in TINY_BASES

    @model_validator(mode="after")
    def _has_the_answers_that_it_needs(self) -> Prompts:
        if self.file == "benchmark" and (self.labels == "given" or self.easiest_by == "pass_rate"):
            raise ValueError(
                "labels: the benchmark's are hidden: expected labels = 'none' or 'offline' and easiest_by = 'majority',"
                f" got labels = {self.labels!r} and easiest_by = {self.easiest_by!r}"
            )
        if self.file == "benchmark" and self.limit is not None:
            raise ValueError(f"limit: expected none, because the whole benchmark is trained on, got {self.limit}")
        if not self.truths_known and (self.labels == "given" or (self.easiest < 1 and self.easiest_by == "pass_rate")):
            raise ValueError(
                "answer: expected the name of a column, because labels = 'given' and easiest_by = 'pass_rate' need the "
                "true answers, got none"
            )
        if self.file in TINY_BASES and self.limit is None:
            raise ValueError("limit: expected how many questions of the tiny world to draw, got none")
        return self
