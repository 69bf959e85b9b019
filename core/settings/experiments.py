"""An experiment: several arms, which differ in some settings, each run with several seeds (docs/experiments.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from core.validation.bounds import Positive, SettingsTable

ArmName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.]{0,23}$")]
Settings = dict[str, Any]  # by their dotted names or in tables, as with --set


class Arm(SettingsTable):
    """One way to run. `preset` replaces the experiment's; `settings` are set after those of the experiment."""

    preset: str | None = None
    settings: Settings = Field(default_factory=dict)


class Experiment(SettingsTable):
    """A file of deploy/experiments. The other arms are compared with `baseline`."""

    title: str
    about: str = ""  # what the experiment asks, and which table or figure of a paper it is
    preset: str = "demo"
    seeds: Positive = 3
    settings: Settings = Field(default_factory=dict)
    arms: dict[ArmName, Arm] = Field(min_length=1)
    baseline: str

    @model_validator(mode="after")
    def _has_its_baseline(self) -> Experiment:
        if self.baseline not in self.arms:
            raise ValueError(f"baseline: expected one of {', '.join(self.arms)}, got {self.baseline!r}")
        return self
