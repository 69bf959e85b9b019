"""Measures the time and the devices that a stage uses, and ends a run that has spent its budget (docs/api.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import get_args

from sqlalchemy import event
from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.settings.config import RunConfig
from core.settings.costs import Budget
from core.types import Purpose, ResourceKind, StageKey
from services.views.costs import total_of
from storage import queries
from storage.session import Store


class BudgetSpent(CoevoError):
    """A run has spent one of its budgets; the message names it."""


class Meter:
    """Adds the time that passes, and the devices that are held meanwhile, to what a stage uses for a purpose.

    It is charged every few seconds, so that little is missing when the process is killed.
    """

    def __init__(
        self,
        key: StageKey,
        purpose: Purpose,
        units: Mapping[ResourceKind, float] | None = None,
        since: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`units` are the devices that are held; `since` is a time of the clock, by default now."""
        self._key, self._purpose, self._units, self._clock = key, purpose, units or {}, clock
        self._since = clock() if since is None else since

    def charge(self, session: Session) -> None:
        """Store the time since the last call whose transaction was committed."""
        now = self._clock()
        seconds = now - self._since
        cpu, gpu = (self._units.get(kind, 0.0) * seconds for kind in get_args(ResourceKind))
        queries.usage.add_usage(session, self._key, self._purpose, seconds=seconds, cpu_seconds=cpu, gpu_seconds=gpu)

        def note(_session: Session) -> None:
            self._since = now

        event.listen(session, "after_commit", note, once=True)


def refuse_spent(store: Store, run: str, config: RunConfig) -> None:
    """Raise `BudgetSpent` if the run has spent one of its budgets."""
    if config.budget == Budget():
        return
    with store.read() as session:
        total = total_of(session, run, config.rates)
    spent = {
        "hours": total.seconds / 3600,
        "tokens": total.prompt_tokens + total.reply_tokens,
        "money": total.money,
        "judge_calls": total.judge_requests,
    }
    for name, amount in spent.items():
        limit = getattr(config.budget, name)
        if limit is not None and amount >= limit:
            raise BudgetSpent(
                f"run {run}: budget.{name}: {amount:,.6g} of {limit:,.6g} are spent, so the run ends here. Nothing is "
                f"lost: `coevo resume {run} --set budget.{name}=…` goes on with more"
            )
