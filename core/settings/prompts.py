"""A given prompt set as a preset's `[prompts]` says it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from core.settings.bounds import Part, Positive


class Prompts(Part):
    """A given prompt set: the setting of the papers that train no Challenger (`self_train`).

    `file` is JSONL or Parquet; "micro", questions of the tiny world; or "benchmark", the evaluation's own questions,
    their labels hidden (test-time training: SRT 4.2, TTRL). `labels` says what a question brings to a method that does
    not vote anew: "given", the answer column; "offline", the votes of the model that training starts from (SRT 5.2).
    """

    file: str
    question: str = "problem"  # column
    answer: str | None = None  # column; seen by the audit, and by the reward only where labels are given
    labels: Literal["none", "given", "offline"] = "none"
    limit: Positive | None = None  # the first so many of a file; how many are drawn for "micro"
    easiest: float = Field(1.0, gt=0, le=1)  # the share that is trained on (SRT 5.3)
    easiest_by: Literal["majority", "pass_rate"] = "majority"  # frequency of the majority answer, or of the true one

    @property
    def voted(self) -> bool:
        """Whether the starting model answers all questions before training."""
        return self.labels == "offline" or self.easiest < 1

    @model_validator(mode="after")
    def _answers_where_they_are_needed(self) -> Prompts:
        if self.file == "benchmark" and (self.labels == "given" or self.easiest_by == "pass_rate"):
            raise ValueError("labels: the benchmark's are hidden; expected labels 'none' or 'offline', by majority")
        if self.file == "benchmark" and self.limit is not None:
            raise ValueError(f"limit: expected none, the benchmark is trained on whole; got {self.limit}")
        known = self.answer is not None or self.file == "micro"
        if not known and (self.labels == "given" or (self.easiest < 1 and self.easiest_by == "pass_rate")):
            raise ValueError(
                "answer: expected the name of a column, where labels are given or a pass rate is asked for"
            )
        if self.file == "micro" and self.limit is None:
            raise ValueError("limit: expected how many questions of the tiny world to draw")
        return self
