"""A flow run of Prefect for one of our runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core.types import Flow

# A flow -> its name in Prefect, which is also the name of its deployment.
DEPLOYMENTS: dict[Flow, str] = {"co_evolve": "co-evolve", "self_train": "self-train"}
EXISTING = "existing run"  # stands for a preset in Prefect's form, whose lists cannot be left empty
ACTIVE = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")
_LISTED = timedelta(days=1)  # a request that has failed or was cancelled and of which no run came is listed so long
# It takes a flow seconds until the store has the run's status, and the clocks of two machines may differ slightly.
_TOLERANCE = timedelta(seconds=10)


def tags_of(*, run: str, preset: str | None = None, iteration: int | None = None) -> list[str]:
    """The tags of a flow run, by which Prefect's lists of flow runs can be filtered."""
    tags = {"run": run, "preset": preset, "iteration": iteration}
    return [f"{name}:{value}" for name, value in tags.items() if value is not None]


@dataclass(frozen=True, slots=True)
class FlowRun:
    """A flow run, and the state that Prefect gives it."""

    id: str
    run: str
    preset: str | None  # None for an existing run, which keeps its own
    state: str  # its type: SCHEDULED, PENDING, RUNNING, PAUSED, CANCELLING, or one in which it has ended
    deployed: bool  # a Prefect worker runs it; otherwise `coevo run` does, in a terminal
    name: str  # of the state: like its type, or more exact, such as Late or AwaitingRetry for SCHEDULED
    message: str | None  # of the state, such as why it failed
    since: datetime  # when it got this state
    created: datetime
    started: datetime | None
    scheduled: datetime | None = None  # when it shall begin, if it has not

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    def is_listed_alone(self, now: datetime) -> bool:
        """Whether the list of runs shows the flow run while there is no run: it is queued, or has just failed."""
        return self.active or now - self.since <= _LISTED

    def changed_status(self, at: datetime | None) -> bool:
        """Whether the flow run has changed its run's status in the store, which last changed `at` (None: no run)."""
        return at is not None and self.started is not None and at >= self.started - _TOLERANCE

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> FlowRun:
        """The flow run in a response of Prefect's REST API."""
        state, started = row["state"] or {}, row["start_time"]
        created, parameters = datetime.fromisoformat(row["created"]), row["parameters"]
        preset = _text(parameters.get("preset_file")) or _text(parameters.get("preset"))
        scheduled = (state.get("state_details") or {}).get("scheduled_time")
        return cls(
            id=row["id"],
            run=_text(parameters.get("run")),
            preset=None if preset in ("", EXISTING) else preset,
            state=row["state_type"] or "",
            deployed=row["deployment_id"] is not None,
            name=row["state_name"] or "",
            message=state.get("message"),
            since=datetime.fromisoformat(state["timestamp"]) if state else created,
            created=created,
            started=datetime.fromisoformat(started) if started else None,
            scheduled=datetime.fromisoformat(scheduled) if scheduled else None,
        )


def _text(parameter: Any) -> str:
    """The text of a parameter; empty if it is none, since Prefect stores any JSON that a caller sends."""
    return parameter if isinstance(parameter, str) else ""
