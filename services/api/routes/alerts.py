"""Alerts: listing them with their deliveries, and acknowledging them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from services.api.access.keys import OF_KEY, PERSON, person
from services.api.dependencies import Limit, StoreDependency
from services.api.problems import documented
from storage import queries
from storage.errors import NotThere
from storage.queries.alerts import AlertGroup
from storage.queries.runs import RUN_NAME
from storage.rows import AlertRow, DeliveryRow, Severity

router = APIRouter(prefix="/alerts", tags=["alerts"])
acknowledging = APIRouter(prefix="/alerts", tags=["alerts"])  # needs the scope `run`, like managing runs

_ID = r"^[0-9a-f]{16}$"
AlertId = Annotated[str, Path(pattern=_ID, examples=["0123456789abcdef"])]


class AlertPage(BaseModel):
    items: list[AlertRow]
    next: str | None  # the `after` of the next page; null on the last page


class AlertDetail(BaseModel):
    alert: AlertRow
    deliveries: list[DeliveryRow]


class Acknowledgement(BaseModel):
    model_config = ConfigDict(extra="forbid")

    by: str | None = Field(None, pattern=PERSON, examples=["ann"], description=f"Who acknowledges the alert. {OF_KEY}")
    note: str = Field("", pattern=r"^[^\x00]{0,2000}$", examples=["Restarted from iteration 3."])


class GroupAcknowledgement(Acknowledgement):
    run: str = Field(pattern=f"^{RUN_NAME.pattern}$", examples=["demo"])
    rule: str = Field(pattern=r"^[a-z_]{1,50}$", examples=["sudden"])
    until: AwareDatetime = Field(description="`raised_at` of the group. Alerts that were raised later stay open.")


class Acknowledged(BaseModel):
    alerts: int  # that were acknowledged


@router.get("", responses=documented(400, 404))
def list_alerts(
    store: StoreDependency,
    run: Annotated[str | None, Query(pattern=f"^{RUN_NAME.pattern}$", examples=["demo"])] = None,
    severity: Severity | None = None,
    acknowledged: Annotated[bool | None, Query(description="Whether it has been acknowledged.")] = None,
    limit: Limit = 50,
    after: Annotated[str | None, Query(pattern=_ID, description="`next` of the previous page.")] = None,
) -> AlertPage:
    """Alerts of all runs or of one, the newest first."""
    with store.read() as session:
        if run is not None:
            queries.runs.get_run(session, run)
        try:
            last = None if after is None else queries.alerts.get_alert(session, after)
        except NotThere as error:
            raise HTTPException(400, f"after: expected `next` of a previous page, got {after!r}") from error
        alerts = queries.alerts.list_alerts(
            session, run=run, severity=severity, acknowledged=acknowledged, after=last, limit=limit + 1
        )
    items = alerts[:limit]
    return AlertPage(items=items, next=items[-1].id if len(alerts) > limit else None)


@router.get("/groups")
def list_groups(store: StoreDependency, severity: Severity | None = None) -> list[AlertGroup]:
    """The alerts that nobody has acknowledged, grouped by run and rule; first the critical ones, then the newest."""
    with store.read() as session:
        return queries.alerts.open_groups(session, severity)


@router.get("/{alert}", responses=documented(404))
def get_alert(store: StoreDependency, alert: AlertId) -> AlertDetail:
    """One alert with its deliveries, one for each target."""
    with store.read() as session:
        return AlertDetail(
            alert=queries.alerts.get_alert(session, alert), deliveries=queries.alerts.deliveries_of(session, alert)
        )


@acknowledging.post("/{alert}/acknowledgement", responses=documented(404, 409))
def acknowledge_alert(request: Request, store: StoreDependency, alert: AlertId, body: Acknowledgement) -> AlertRow:
    """Acknowledge an alert. This can be done once."""
    by = person(request, body.by, "by")
    with store.write() as session:
        return queries.alerts.acknowledge(session, alert, by, body.note)


@acknowledging.post("/acknowledgement", responses=documented(404))
def acknowledge_group(request: Request, store: StoreDependency, body: GroupAcknowledgement) -> Acknowledged:
    """Acknowledge the open alerts of a run by a rule that were raised until then, all together."""
    by = person(request, body.by, "by")
    with store.write() as session:
        queries.runs.get_run(session, body.run)
        alerts = queries.alerts.acknowledge_group(
            session, run=body.run, rule=body.rule, until=body.until, by=by, note=body.note
        )
        return Acknowledged(alerts=alerts)
