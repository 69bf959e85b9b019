"""What computing and judges cost, and how much a run may spend: a preset's `[rates]` and `[budget]` (docs/api.md)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from core.validation.bounds import SettingsTable

_Rate = Annotated[float, Field(ge=0, le=1_000_000)]
_Amount = Annotated[float, Field(gt=0, le=1e15)]


class Rates(SettingsTable):
    """Prices, in US dollars. 0: it costs nothing, or its price is not known."""

    currency: ClassVar[str] = "USD"  # in which clouds and the services of models state their prices

    gpu_hour: _Rate = 0.0
    cpu_hour: _Rate = 0.0
    judge_prompt: _Rate = 0.0  # per million tokens
    judge_reply: _Rate = 0.0  # per million tokens

    @property
    def known(self) -> bool:
        """Whether anything has a price."""
        return any((self.gpu_hour, self.cpu_hour, self.judge_prompt, self.judge_reply))


class Budget(SettingsTable):
    """The most that a run may spend. None: no limit. When one of them is spent, the run ends between two batches."""

    hours: _Amount | None = None  # in which its stages work
    tokens: _Amount | None = None  # of prompts and replies, of all models
    money: _Amount | None = None  # by `Rates`
    judge_calls: _Amount | None = None
