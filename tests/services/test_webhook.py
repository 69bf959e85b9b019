"""Webhooks to a receiver that accepts them, refuses them, is unreachable, or kills the sender."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_examples import RUN, fill
from fake_receiver import Received, Receiver, fake_receiver
from fastapi.testclient import TestClient
from sqlalchemy import update
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.settings.config import CoEvolution
from core.statistics.alerts import Alerts as AlertSettings
from core.statistics.estimates import share
from core.statistics.guard import Alarm
from services.api.app import PREFIX, create_app
from services.drift import outbox, webhook
from services.drift.alerts import record
from services.drift.outbox import ATTEMPTS, deliver_one, delivering
from services.drift.webhook import TIMEOUT_S, Webhook, WebhookError, body_of, signature, webhook_from
from storage import queries
from storage.models import Alerts, Deliveries, Runs
from storage.queries.tables import table_of
from storage.rows import AlertRow, DeliveryRow, SeriesPoint
from storage.session import Store
from tests.http_server import Handler, listening

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with fake_receiver() as opened:
        yield opened


def store_alert(store: Store, number: int = 1) -> AlertRow:
    with store.write() as session:
        if not queries.runs.list_runs(session):
            queries.runs.create_run(session, name=RUN, config=CoEvolution())
        raised = datetime.now(UTC) + timedelta(milliseconds=number)
        row = AlertRow(
            *(f"{number:016x}", RUN, 1, "sudden", "label_accuracy", "kept", "exact", "critical"),
            *(0.7, 0.6, 0.8, 400, 0.8, 0.75, "it fell", raised),
        )
        queries.alerts.add_alerts(session, [row])
        return row


def delivery(store: Store, alert: AlertRow) -> DeliveryRow:
    with store.read() as session:
        [row] = queries.alerts.deliveries_of(session, alert.id)
        return row


def make_due(store: Store) -> None:
    with store.write() as session:
        session.execute(update(table_of(Deliveries)).values(next_at=datetime.now(UTC) - timedelta(seconds=1)))


def is_signed(received: Received, secret: str = SECRET) -> bool:
    """Whether the request passes the check of Standard Webhooks."""
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(expected, received.headers["webhook-signature"])


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The values are the reference vector of the libraries of Standard Webhooks."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_failed_delivery_is_repeated_until_it_succeeds(store: Store, receiver: Receiver) -> None:
    alert, target = store_alert(store), Webhook(receiver.url, KEY)
    receiver.answers = [500, 302]
    for attempt, error in ((1, "HTTP 500"), (2, "HTTP 302")):
        assert deliver_one(store, target)
        tried = delivery(store, alert)
        assert (tried.attempts, tried.error, tried.delivered_at) == (attempt, error, None)
        assert not deliver_one(store, target)  # it is not due yet
        make_due(store)
    assert deliver_one(store, target)
    arrived = delivery(store, alert)
    assert (arrived.attempts, arrived.error, arrived.delivered_at is not None) == (3, None, True)
    make_due(store)
    assert not deliver_one(store, target)
    requests = receiver.all()
    assert [request.headers["webhook-id"] for request in requests] == [alert.id] * 3
    assert all(map(is_signed, requests))
    assert not is_signed(requests[0], "whsec_" + base64.b64encode(bytes(32)).decode())
    assert requests[0].json["type"] == "coevo.alert.raised"
    assert (requests[0].json["data"]["run"], requests[0].json["data"]["value"]) == (RUN, 0.7)
    assert {request.body for request in requests} == {body_of(alert)}
    assert "secret" not in arrived.target  # an address may have a secret in it, so it is not stored


def test_an_unreachable_receiver_is_stored_as_an_error(store: Store) -> None:
    alert = store_alert(store)
    assert deliver_one(store, Webhook("http://127.0.0.1:9/hook", KEY))
    assert "ConnectError" in delivery(store, alert).error


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (f"http://{'a' * 64}.example.org/hook", "UnicodeError"),  # a name longer than DNS allows
        ("http://example.org/hook\n", "InvalidURL"),
    ],
)
def test_an_invalid_address_is_stored_as_an_error(store: Store, url: str, error: str) -> None:
    alert = store_alert(store)
    assert deliver_one(store, Webhook(url, KEY))
    assert error in delivery(store, alert).error


def test_a_delivery_to_a_receiver_that_does_not_answer_times_out(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is 10 s, in this test 0.1 s, and the receiver answers only after it."""
    assert TIMEOUT_S == 10
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.1)
    alert, timed_out = store_alert(store), threading.Event()
    receiver.before_it_answers = lambda: timed_out.wait(60)
    assert deliver_one(store, Webhook(receiver.url, KEY))
    timed_out.set()
    assert "ReadTimeout" in delivery(store, alert).error


def test_the_body_of_a_response_is_not_read(store: Store) -> None:
    """It may have no end: the receiver sends the first bytes and then waits for the sender to close the connection."""

    class Endless(Handler):
        def do_POST(self) -> None:
            self.json()
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 40))
            self.end_headers()
            self.wfile.write(bytes(1_000))
            self.rfile.read()

    alert = store_alert(store)
    with listening(Endless) as url:
        assert deliver_one(store, Webhook(f"{url}/hook", KEY))
    assert delivery(store, alert).delivered_at is not None


def test_a_delivery_is_repeated_after_growing_pauses_and_given_up_in_the_end(store: Store, receiver: Receiver) -> None:
    """As docs/alerts.md says, it is repeated after 30 s, 1, 2, 4 minutes and so on up to an hour, 16 times in all."""
    alert, target = store_alert(store), Webhook(receiver.url, KEY)
    receiver.answers = [500] * (ATTEMPTS + 1)
    for seconds in (30, 60, 120, 240, 480, 960, 1920, *[3600] * 9):
        before = datetime.now(UTC)
        assert deliver_one(store, target)
        assert before <= delivery(store, alert).next_at - timedelta(seconds=seconds) <= datetime.now(UTC)
        make_due(store)
    assert not deliver_one(store, target)
    assert (delivery(store, alert).attempts, len(receiver.all())) == (ATTEMPTS, ATTEMPTS)


def test_an_alert_whose_sender_was_killed_is_sent_again_with_the_same_id(
    store: Store, database_url: str, receiver: Receiver
) -> None:
    alert = store_alert(store)
    code = (
        "import sys; from services.drift.outbox import deliver_one; from services.drift.webhook import Webhook\n"
        "from storage.session import open_store\n"
        "deliver_one(open_store(sys.argv[1]), Webhook(sys.argv[2], bytes(range(32))))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    sender = subprocess.Popen([sys.executable, "-c", code, database_url, receiver.url], env=environment, cwd=root)
    receiver.before_it_answers = lambda: os.kill(sender.pid, signal.SIGKILL)
    assert sender.wait(120) == -signal.SIGKILL
    receiver.before_it_answers = lambda: None
    unfinished = delivery(store, alert)
    assert (unfinished.attempts, unfinished.delivered_at) == (1, None)
    assert not deliver_one(store, Webhook(receiver.url, KEY))  # while the killed sender might still be working
    make_due(store)
    assert deliver_one(store, Webhook(receiver.url, KEY))
    assert [request.headers["webhook-id"] for request in receiver.all()] == [alert.id] * 2


def test_the_delivering_thread_sends_alerts_in_order_until_its_block_ends(store: Store, receiver: Receiver) -> None:
    alerts = [store_alert(store, number) for number in (1, 2, 3)]
    with delivering(store, Webhook(receiver.url, KEY)):
        requests = [receiver.received.get(timeout=60) for _ in alerts]
    assert [request.headers["webhook-id"] for request in requests] == [alert.id for alert in alerts]
    assert all(delivery(store, alert).delivered_at for alert in alerts)
    with delivering(store, None):
        pass


def test_the_delivering_thread_goes_on_after_a_time_without_a_free_connection(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    alert, delivery_due = store_alert(store), queries.alerts.delivery_due
    errors = [PoolTimeoutError("QueuePool limit of size 20 overflow 0 reached")]

    def due_after_an_error(*args: Any, **options: Any) -> bool:
        if errors:
            raise errors.pop()
        return delivery_due(*args, **options)

    monkeypatch.setattr(queries.alerts, "delivery_due", due_after_an_error)
    monkeypatch.setattr(outbox, "_POLL_S", 0.0)
    with delivering(store, Webhook(receiver.url, KEY)):
        request = receiver.received.get(timeout=60)
    assert (request.headers["webhook-id"], errors) == (alert.id, [])


def test_an_alert_that_json_cannot_represent_does_not_delay_the_others(store: Store, receiver: Receiver) -> None:
    """Earlier versions stored alerts with infinite values."""
    bad, good = store_alert(store, 1), store_alert(store, 2)
    with store.write() as session:
        session.execute(update(table_of(Alerts)).where(Alerts.id == bad.id).values(value=math.inf))
    with delivering(store, Webhook(receiver.url, KEY)):
        request = receiver.received.get(timeout=60)
    assert request.headers["webhook-id"] == good.id
    assert delivery(store, good).delivered_at is not None
    failed = delivery(store, bad)
    assert (failed.attempts, failed.delivered_at) == (1, None)
    assert "ValueError: Out of range float values" in failed.error


def test_an_alert_with_an_infinite_kl_arrives_with_the_largest_number(store: Store, receiver: Receiver) -> None:
    alarm = Alarm("hacking", "stop", math.inf, 0.15, 7, "step 7: at a KL of inf nats a token")
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=CoEvolution())
        [alert] = record(session, RUN, 1, [alarm])
    assert (alert.value, alert.threshold) == (sys.float_info.max, 0.15)
    assert deliver_one(store, Webhook(receiver.url, KEY))
    data = receiver.all()[0].json["data"]
    assert data["value"] == sys.float_info.max
    assert data["text"] == f"{alarm.text}; the value overflowed, and 1.8e+308 stands for infinity"


def test_the_webhook_is_configured_by_the_environment() -> None:
    environment = {"COEVO_WEBHOOK_URL": "https://user:pw@example.org/x", "COEVO_WEBHOOK_SECRET": SECRET}
    target = webhook_from(environment)
    assert (target.key, target.name.startswith("example.org#"), "pw" in target.name) == (KEY, True, False)
    assert webhook_from({}) is None
    with pytest.raises(WebhookError, match="COEVO_WEBHOOK_URL: expected an http or https address"):
        webhook_from({**environment, "COEVO_WEBHOOK_URL": "file:///etc/passwd"})
    for url in (
        *(
            "http://[::1/x",
            "https://user:pass/word@example.org/x",
            "https://example.org/x\ny",
            "https://example.org:x/",
        ),
        *("https://example.org:65536/", "https:///x", "https://\u2024.org/", f"https://example.org/{'x' * 70_000}"),
    ):
        with pytest.raises(WebhookError, match=r"^COEVO_WEBHOOK_URL: expected an http or https address$"):
            webhook_from({**environment, "COEVO_WEBHOOK_URL": url})
    for wrong in ("", "whsec_AAAA", "not base64!"):
        with pytest.raises(WebhookError, match="COEVO_WEBHOOK_SECRET: expected whsec_ and 24 to 64 bytes") as refused:
            webhook_from({**environment, "COEVO_WEBHOOK_SECRET": wrong})
        assert not wrong or wrong not in str(refused.value)


def test_an_alert_that_people_s_labels_raise_is_sent_too(sqlite: Store, receiver: Receiver, tmp_path: Path) -> None:
    """Two people label iteration 1, whose label accuracy is lower than that of iteration 0. No flow works meanwhile."""
    fill(sqlite)
    before = SeriesPoint.of(share(300, 300), 0, "label_accuracy", "kept", "human")
    config = CoEvolution(alerts=AlertSettings(min_n=1)).model_dump(mode="json")
    with sqlite.write() as session:
        queries.series.put_series(session, RUN, [before])
        session.execute(update(table_of(Runs)).values(config=config))
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), base_url="http://localhost")
    iteration_url = f"{PREFIX}/runs/{RUN}/iterations/1"
    assert api.post(f"{iteration_url}/samples", json={"oracle": "human", "size": 4}).status_code == 201
    for name in ("ann", "bob"):
        for index in (0, 1, 2, 4):
            label = {"annotator": name, "verdict": "wrong"}
            assert api.post(f"{iteration_url}/labelling/{index}", json=label).status_code == 201
    assert deliver_one(sqlite, Webhook(receiver.url, KEY))
    [request] = receiver.all()
    assert (request.json["data"]["run"], request.json["data"]["series"]) == (RUN, "label_accuracy")


def test_the_delivering_thread_goes_on_when_a_run_is_deleted_while_its_alert_is_sent(
    store: Store, receiver: Receiver
) -> None:
    def delete_the_first_run() -> None:
        receiver.before_it_answers = lambda: None
        with store.write() as session:
            queries.runs.delete_run(session, RUN)
        store_alert(store, 2)

    receiver.answers = [500]  # the deliveries of a failed attempt and of one that arrived are both gone
    receiver.before_it_answers = delete_the_first_run
    first = store_alert(store, 1)
    with delivering(store, Webhook(receiver.url, KEY)):
        ids = [receiver.received.get(timeout=60).headers["webhook-id"] for _ in range(2)]
    assert ids == [first.id, f"{2:016x}"]
    with store.write() as session:
        queries.alerts.mark_delivered(session, first.id, "webhook")
