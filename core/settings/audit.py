"""Which oracle says whether pseudo-labels are right: a preset's `[audit]`, `[audit.judge]` and `[audit.program]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, field_validator, model_validator

from core.asking.judge import Judge
from core.asking.service import Service
from core.validation.bounds import Positive, SettingsTable
from core.validation.suggestions import did_you_mean

_Oracle = Literal["exact", "given", "program", "judge"]


def _oracle(value: Any) -> Any:
    """`none` as None. Raises `ValueError` for an unknown oracle, with `none` among the known ones."""
    known = [*get_args(_Oracle), "none"]
    if value is None or value in known:
        return None if value == "none" else value
    suggestion = did_you_mean(value, known) if isinstance(value, str) else ""
    raise ValueError(f"expected one of {', '.join(known)}, got {repr(value)[:100]}{suggestion}")


Oracle = Annotated[_Oracle | None, BeforeValidator(_oracle)]


class Program(SettingsTable):
    """A program of one's own that grades pseudo-labels (`services.oracles.program`; docs/extending.md).

    It runs with the rights of the run, so whoever names it can do what the run can. REST takes words as settings, but
    no word is an absolute path.
    """

    timeout: ClassVar[float] = 600.0  # seconds, for all pseudo-labels of an iteration; a hanging program ends there

    file: str  # an executable file, by its absolute path

    @field_validator("file")
    @classmethod
    def _is_absolute(cls, file: str) -> str:
        if not Path(file).is_absolute():
            raise ValueError(f"expected the absolute path of a program, got {file!r}")
        return file


class Audit(SettingsTable):
    """The oracle that grades pseudo-labels.

    `exact`, a program for the tiny world, `given`, the answers that came with the prompts, and `program`, a program of
    one's own, grade all of them. `judge`, a language model, grades all or a sample. In TOML, `none` means that nothing
    is audited.

    `if_unreachable` says what a run does if the judge's service does not answer, or refuses every request: "go_on" to
    the next stage, with fewer labels graded or none, or "stop" with an error.
    """

    oracle: Oracle = "exact"
    sample: Positive | None = None  # pseudo-labels per iteration that a judge grades; None: all
    if_unreachable: Literal["go_on", "stop"] = "go_on"
    judge: Judge | None = None
    program: Program | None = None

    @property
    def label(self) -> str | None:
        """The name of the oracle under which the labels are stored."""
        return self.judge.oracle if self.oracle == "judge" and self.judge else self.oracle

    @property
    def services(self) -> list[Service]:
        """The services that the audit asks."""
        return [self.judge] if self.judge is not None else []

    @model_validator(mode="after")
    def _judge_settings_fit_the_oracle(self) -> Audit:
        if self.oracle == "judge" and self.judge is None:
            raise ValueError("judge: expected a table with url and model, since oracle is 'judge', got none")
        if self.oracle != "judge" and self.judge is not None:
            raise ValueError(f"judge: belongs to oracle = 'judge', got oracle = {self.oracle!r}: leave the table out")
        if self.oracle != "judge" and self.sample is not None:
            raise ValueError(f"sample: belongs to oracle = 'judge', got oracle = {self.oracle!r}, which grades all")
        return self

    @model_validator(mode="after")
    def _program_fits_the_oracle(self) -> Audit:
        if self.oracle == "program" and self.program is None:
            raise ValueError("program: expected a table with file, since oracle is 'program', got none")
        if self.oracle != "program" and self.program is not None:
            raise ValueError(f"program: belongs to oracle = 'program', got oracle = {self.oracle!r}: leave it out")
        return self
