"""Alerts as events of a real Prefect server, which stores them and runs its automations, but has no worker."""

from __future__ import annotations

from collections.abc import Iterator
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
from prefect_server import known, post, prefect_server
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
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prefect_server(tmp_path_factory.mktemp("prefect"), services=True) as url:
        [given] = yaml.safe_load(AUTOMATIONS.read_text(encoding="utf-8"))["automations"]
        post(url, "/automations/", **AutomationCore.model_validate(given).model_dump(mode="json"))
        yield url


@pytest.fixture
def store(sqlite: Store) -> Store:
    """What the outbox asks of a store is tested with the webhook."""
    return sqlite


def alert_of(run: str, severity: Severity = "critical") -> AlertRow:
    return AlertRow(
        *(uuid4().hex[:16], run, 1, "sudden", "label_accuracy", "kept", "human", severity),
        *(0.7, 0.6, 0.8, 400, 0.8, 0.75, "it fell", datetime.now(UTC)),
    )


def raise_one(store: Store, run: str) -> AlertRow:
    alert = alert_of(run)
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=CoEvolution())
        queries.alerts.add_alerts(session, [alert])
    return alert


def delivery(store: Store, alert: AlertRow, target: str = "prefect") -> DeliveryRow:
    with store.read() as session:
        [row] = [each for each in queries.alerts.deliveries_of(session, alert.id) if each.target == target]
        return row


def events(url: str, *alerts: AlertRow) -> list[Any]:
    ids = [event_of(alert, None)["id"] for alert in alerts]
    return list(post(url, "/events/filter", filter={"id": {"id": ids}})["events"])


def started(url: str, run: str) -> str:
    """A deployment from which a flow run was started that works on `run`."""
    flow = post(url, "/flows/", name="co-evolve")["id"]
    made = post(url, "/deployments/", name=run, flow_id=flow)["id"]
    post(url, f"/deployments/{made}/create_flow_run", name=run, parameters={"run": run})
    return str(made)


def paused(url: str, deployment: str) -> bool:
    answer = known(url).request("GET", f"/deployments/{deployment}").raise_for_status()
    return bool(answer.json()["paused"])


@pytest.fixture
def run() -> str:
    """One that Prefect has not heard of yet."""
    return f"run-{uuid4().hex[:8]}"


def test_an_alert_arrives_as_an_event_and_its_runs_deployment_is_paused(store: Store, prefect: str, run: str) -> None:
    deployment, alert = started(prefect, run), raise_one(store, run)
    with delivering(store, [PrefectEvents(known(prefect))]):
        wait_until(lambda: _arrived(store, alert), "the alert to be delivered")
    wait_until(lambda: bool(events(prefect, alert)), "Prefect to store the event")
    [stored], sent = events(prefect, alert), event_of(alert, UUID(deployment))
    assert {name: stored[name] for name in sent} == {**sent, "occurred": stored["occurred"]}
    assert datetime.fromisoformat(stored["occurred"]) == alert.raised_at
    wait_until(lambda: paused(prefect, deployment), "the automation to pause the deployment")


def test_what_is_delivered_twice_is_one_event_and_pauses_once(store: Store, prefect: str, run: str) -> None:
    """As after a sender that died before it noted that the first had arrived."""
    deployment, alert, target = started(prefect, run), raise_one(store, run), PrefectEvents(known(prefect))
    assert deliver_one(store, target)
    wait_until(lambda: bool(events(prefect, alert)) and paused(prefect, deployment), "the first to be seen to")
    known(prefect).request("POST", f"/deployments/{deployment}/resume_deployment").raise_for_status()
    with store.write() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(table_of(Deliveries)).values(next_at=past, delivered_at=None))
    assert deliver_one(store, target)
    again = delivery(store, alert)
    assert (again.attempts, again.error, again.delivered_at is not None) == (2, None, True)
    another, later = started(prefect, f"{run}-2"), alert_of(f"{run}-2")
    assert target.send(later).status_code == 204
    wait_until(lambda: bool(events(prefect, later)) and paused(prefect, another), "what came later to be seen to")
    assert (len(events(prefect, alert)), paused(prefect, deployment)) == (1, False)


def test_a_run_that_no_deployment_started_has_none_related(store: Store, prefect: str, run: str) -> None:
    started(prefect, f"{run}-2")
    alert = raise_one(store, run)
    assert deliver_one(store, PrefectEvents(known(prefect)))
    wait_until(lambda: bool(events(prefect, alert)), "Prefect to store the event")
    assert events(prefect, alert)[0]["related"] == []


def test_what_people_find_long_after_the_flow_arrives_too(store: Store, prefect: str, tmp_path: Path) -> None:
    """Two people label iteration 1, which has fallen from what they said of iteration 0."""
    fill(store)
    before = SeriesPoint(0, "label_accuracy", "kept", "human", 1.0, *(share(300, 300).lo, 1.0), 300)
    with store.write() as session:
        queries.series.put_series(session, RUN, [before])
        session.execute(
            update(table_of(Runs)).values(config=CoEvolution(alerts=Alerts(min_n=1)).model_dump(mode="json"))
        )
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), base_url="http://localhost")
    at = f"{PREFIX}/runs/{RUN}/iterations/1"
    assert api.post(f"{at}/samples", json={"oracle": "human", "size": 4}).status_code == 201
    for name in ("ann", "bob"):
        for index in (0, 1, 2, 4):
            said = api.post(f"{at}/labelling/{index}", json={"annotator": name, "verdict": "wrong"})
            assert said.status_code == 201
    with store.read() as session:
        [alert] = queries.alerts.list_alerts(session, run=RUN)
    assert deliver_one(store, PrefectEvents(known(prefect)))
    wait_until(lambda: bool(events(prefect, alert)), "Prefect to store the event")
    [stored] = events(prefect, alert)
    assert (stored["event"], stored["resource"]["prefect.resource.id"]) == ("coevo.alert.raised", f"coevo.run.{RUN}")
    assert stored["payload"] == {
        "alert": alert.id,
        "iteration": 1,
        "series": "label_accuracy",
        "text": alert.text,
    }


def test_a_prefect_that_is_down_is_tried_again_and_holds_up_no_webhook(store: Store, run: str) -> None:
    alert = raise_one(store, run)
    with fake_receiver() as receiver:
        webhook = Webhook(receiver.url, bytes(32))
        with delivering(store, [PrefectEvents(known("http://127.0.0.1:9")), webhook]):
            assert receiver.received.get(timeout=60).headers["webhook-id"] == alert.id
            wait_until(lambda: _noted(store, alert), "the failure to be noted")
    down = delivery(store, alert)
    assert (down.attempts, down.delivered_at, "ConnectError" in str(down.error)) == (1, None, True)
    assert delivery(store, alert, webhook.name).delivered_at is not None


def test_an_answer_that_is_not_prefects_is_noted(store: Store, run: str) -> None:
    """204 and no text, as a proxy may say."""
    alert = raise_one(store, run)
    with fake_receiver() as receiver:
        assert deliver_one(store, PrefectEvents(known(receiver.url.removesuffix("/hook?token=secret"))))
    assert str(delivery(store, alert).error).startswith("ValidationError")


def _arrived(store: Store, alert: AlertRow) -> bool:
    with store.read() as session:
        return any(row.delivered_at for row in queries.alerts.deliveries_of(session, alert.id))


def _noted(store: Store, alert: AlertRow) -> bool:
    with store.read() as session:
        return any(row.target == "prefect" and row.error for row in queries.alerts.deliveries_of(session, alert.id))
