"""Alerts as events of a real Prefect server, which stores events and runs automations but has no worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml
from api_examples import RUN, fill
from fake_receiver import fake_receiver
from fastapi.testclient import TestClient
from prefect.events.schemas.automations import AutomationCore
from prefect_server import post, prefect_at
from sqlalchemy import update

from core.settings.alerts import Alerts
from core.settings.config import CoEvolution
from core.statistics.estimates import share
from orchestrator.installation.home import ROOT
from services.api.app import PREFIX, create_app
from services.drift.outbox import deliver_one, delivering
from services.drift.prefect_events import PrefectEvents, event_of
from services.drift.webhook import Webhook
from storage import queries
from storage.models import Deliveries, Runs
from storage.queries.tables import table_of
from storage.rows import AlertRow, DeliveryRow, SeriesPoint, Severity
from storage.session import Store
from tests.live import wait_until

AUTOMATIONS = ROOT / "deploy" / "prefect" / "automations.yaml"


@pytest.fixture(scope="module")
def prefect(prefect_url: str) -> str:
    """The server, with our automations."""
    [definition] = yaml.safe_load(AUTOMATIONS.read_text(encoding="utf-8"))["automations"]
    post(prefect_url, "/automations/", **AutomationCore.model_validate(definition).model_dump(mode="json"))
    return prefect_url


@pytest.fixture
def store(sqlite: Store) -> Store:
    """A store on SQLite only: test_webhook.py tests the outbox on both databases."""
    return sqlite


def alert_of(run: str, severity: Severity = "critical") -> AlertRow:
    return AlertRow(
        *(uuid4().hex[:16], run, 1, "sudden", "label_accuracy", "kept", "human", severity),
        *(0.7, 0.6, 0.8, 400, 0.8, 0.75, "it fell", datetime.now(UTC)),
    )


def store_alert(store: Store, run: str) -> AlertRow:
    alert = alert_of(run)
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=CoEvolution())
        queries.alerts.add_alerts(session, [alert])
    return alert


def delivery(store: Store, alert: AlertRow, target: str = "prefect") -> DeliveryRow:
    with store.read() as session:
        [row] = [
            candidate for candidate in queries.alerts.deliveries_of(session, alert.id) if candidate.target == target
        ]
        return row


def events(url: str, *alerts: AlertRow) -> list[Any]:
    ids = [event_of(alert, None)["id"] for alert in alerts]
    return list(post(url, "/events/filter", filter={"id": {"id": ids}})["events"])


def start_flow_run(url: str, run: str) -> str:
    """Create a deployment and a flow run of it that works on `run`; returns the deployment's id."""
    flow = post(url, "/flows/", name="co-evolve")["id"]
    deployment = post(url, "/deployments/", name=run, flow_id=flow)["id"]
    post(url, f"/deployments/{deployment}/create_flow_run", name=run, parameters={"run": run})
    return str(deployment)


def is_paused(url: str, deployment: str) -> bool:
    response = prefect_at(url).request("GET", f"/deployments/{deployment}").raise_for_status()
    return bool(response.json()["paused"])


@pytest.fixture
def run() -> str:
    """The name of a run that Prefect does not know yet."""
    return f"run-{uuid4().hex[:8]}"


def test_an_alert_arrives_as_an_event_and_the_deployment_of_its_run_is_paused(
    store: Store, prefect: str, run: str
) -> None:
    deployment, alert = start_flow_run(prefect, run), store_alert(store, run)
    with delivering(store, [PrefectEvents(prefect_at(prefect))]):
        wait_until(lambda: _arrived(store, alert), "the alert to be delivered")
    wait_until(lambda: bool(events(prefect, alert)), "Prefect to store the event")
    [stored], sent = events(prefect, alert), event_of(alert, UUID(deployment))
    assert {name: stored[name] for name in sent} == {**sent, "occurred": stored["occurred"]}
    assert datetime.fromisoformat(stored["occurred"]) == alert.raised_at
    wait_until(lambda: is_paused(prefect, deployment), "the automation to pause the deployment")


def test_an_alert_that_is_delivered_twice_is_one_event_and_pauses_once(store: Store, prefect: str, run: str) -> None:
    """This happens when a sender dies before it has stored that the alert arrived."""
    deployment, alert, target = (
        start_flow_run(prefect, run),
        store_alert(store, run),
        PrefectEvents(prefect_at(prefect)),
    )
    assert deliver_one(store, target)
    wait_until(
        lambda: bool(events(prefect, alert)) and is_paused(prefect, deployment),
        "the automation to handle the first alert",
    )
    prefect_at(prefect).request("POST", f"/deployments/{deployment}/resume_deployment").raise_for_status()
    with store.write() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(table_of(Deliveries)).values(next_at=past, delivered_at=None))
    assert deliver_one(store, target)
    again = delivery(store, alert)
    assert (again.attempts, again.error, again.delivered_at is not None) == (2, None, True)
    another, later = start_flow_run(prefect, f"{run}-2"), alert_of(f"{run}-2")
    assert target.send(later).status_code == 204
    wait_until(
        lambda: bool(events(prefect, later)) and is_paused(prefect, another), "the automation to handle the later alert"
    )
    assert (len(events(prefect, alert)), is_paused(prefect, deployment)) == (1, False)


def test_the_event_of_a_run_without_a_deployment_has_no_related_resource(store: Store, prefect: str, run: str) -> None:
    start_flow_run(prefect, f"{run}-2")
    alert = store_alert(store, run)
    assert deliver_one(store, PrefectEvents(prefect_at(prefect)))
    wait_until(lambda: bool(events(prefect, alert)), "Prefect to store the event")
    assert events(prefect, alert)[0]["related"] == []


def test_an_alert_from_people_s_labels_after_the_flow_s_end_arrives_too(
    store: Store, prefect: str, tmp_path: Path
) -> None:
    """Two people label iteration 1, whose label accuracy is lower than that of iteration 0."""
    fill(store)
    before = SeriesPoint(0, "label_accuracy", "kept", "human", 1.0, *(share(300, 300).lo, 1.0), 300)
    with store.write() as session:
        queries.series.put_series(session, RUN, [before])
        session.execute(
            update(table_of(Runs)).values(config=CoEvolution(alerts=Alerts(min_n=1)).model_dump(mode="json"))
        )
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), base_url="http://localhost")
    iteration_url = f"{PREFIX}/runs/{RUN}/iterations/1"
    assert api.post(f"{iteration_url}/samples", json={"oracle": "human", "size": 4}).status_code == 201
    for name in ("ann", "bob"):
        for index in (0, 1, 2, 4):
            response = api.post(f"{iteration_url}/labelling/{index}", json={"annotator": name, "verdict": "wrong"})
            assert response.status_code == 201
    with store.read() as session:
        [alert] = queries.alerts.list_alerts(session, run=RUN)
    assert deliver_one(store, PrefectEvents(prefect_at(prefect)))
    wait_until(lambda: bool(events(prefect, alert)), "Prefect to store the event")
    [stored] = events(prefect, alert)
    assert (stored["event"], stored["resource"]["prefect.resource.id"]) == ("coevo.alert.raised", f"coevo.run.{RUN}")
    assert stored["payload"] == {
        "alert": alert.id,
        "iteration": 1,
        "series": "label_accuracy",
        "text": alert.text,
    }


def test_an_unreachable_prefect_is_stored_as_an_error_and_does_not_delay_the_webhook(store: Store, run: str) -> None:
    alert = store_alert(store, run)
    with fake_receiver() as receiver:
        webhook = Webhook(receiver.url, bytes(32))
        with delivering(store, [PrefectEvents(prefect_at("http://127.0.0.1:9")), webhook]):
            assert receiver.received.get(timeout=60).headers["webhook-id"] == alert.id
            wait_until(lambda: _has_error(store, alert), "the failure to be stored")
    down = delivery(store, alert)
    assert (down.attempts, down.delivered_at, "ConnectError" in str(down.error)) == (1, None, True)
    assert delivery(store, alert, webhook.name).delivered_at is not None


def test_a_response_that_is_not_prefect_s_is_stored_as_an_error(store: Store, run: str) -> None:
    """The response is 204 without a text, as a proxy may send it."""
    alert = store_alert(store, run)
    with fake_receiver() as receiver:
        assert deliver_one(store, PrefectEvents(prefect_at(receiver.url.removesuffix("/hook?token=secret"))))
    assert str(delivery(store, alert).error).startswith("ValidationError")


def _arrived(store: Store, alert: AlertRow) -> bool:
    with store.read() as session:
        return any(row.delivered_at for row in queries.alerts.deliveries_of(session, alert.id))


def _has_error(store: Store, alert: AlertRow) -> bool:
    with store.read() as session:
        return any(row.target == "prefect" and row.error for row in queries.alerts.deliveries_of(session, alert.id))
