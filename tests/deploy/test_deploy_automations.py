"""deploy/prefect/automations.yaml as `prefect automation create` reads it, and the events that it reacts to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml
from prefect.events import Event
from prefect.events.schemas.automations import AutomationCore
from prefect.server.events.actions import PauseDeployment, _id_of_first_resource_of_kind
from prefect.server.events.schemas.automations import AutomationCore as ServersAutomation
from prefect.server.events.schemas.automations import EventTrigger
from prefect.server.events.schemas.events import ReceivedEvent

from orchestrator.installation.home import ROOT
from services.drift.prefect_events import event_of
from storage.rows import AlertRow, Severity

FILE = ROOT / "deploy" / "prefect" / "automations.yaml"


@pytest.fixture
def automation() -> ServersAutomation:
    [definition] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["automations"]
    # The command reads the file by its own schema and sends the result, which the server reads by its schema.
    return ServersAutomation.model_validate_json(AutomationCore.model_validate(definition).model_dump_json())


def event(severity: Severity, deployment: UUID | None) -> dict[str, Any]:
    alert = AlertRow(
        *("0123456789abcdef", "demo", 3, "sudden", "label_accuracy", "kept", "exact", severity),
        *(0.7, 0.6, 0.8, 400, 0.8, 0.75, "it fell", datetime.now(UTC)),
    )
    return event_of(alert, deployment)


def receive(fields: dict[str, Any]) -> ReceivedEvent:
    return ReceivedEvent(**Event(**fields).model_dump())


def test_a_critical_alert_pauses_the_deployment_that_its_run_was_started_from(automation: ServersAutomation) -> None:
    deployment = uuid4()
    trigger, [action] = automation.trigger, automation.actions
    assert isinstance(trigger, EventTrigger)
    assert trigger.immediate
    received = receive(event("critical", deployment))
    assert trigger.expects(received.event)
    assert trigger.covers(received)
    assert isinstance(action, PauseDeployment)
    assert action.source == "inferred"
    assert str(_id_of_first_resource_of_kind(received, "prefect.deployment")) == str(deployment)


def test_a_warning_or_a_run_without_a_deployment_pauses_nothing(automation: ServersAutomation) -> None:
    trigger = automation.trigger
    assert isinstance(trigger, EventTrigger)
    assert not trigger.covers(receive(event("warning", uuid4())))
    assert not trigger.covers(receive(event("critical", None)))


def test_an_alert_that_is_sent_again_has_the_same_event_id() -> None:
    assert event("critical", None)["id"] == event("critical", uuid4())["id"]
