"""Alerts on their way to a receiver that answers, refuses, is not there, or kills the sender."""

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

import pytest
from api_examples import RUN
from fake_receiver import Received, Receiver, fake_receiver
from sqlalchemy import update

from core.settings.config import CoEvolution
from core.statistics.guard import Alarm
from services.drift import webhook
from services.drift.alerts import record
from services.drift.outbox import ATTEMPTS, TIMEOUT_S, deliver_one, delivering
from services.drift.webhook import Webhook, WebhookError, body_of, signature, webhook_from
from storage import queries
from storage.models import Alerts, Deliveries
from storage.queries.tables import table_of
from storage.rows import AlertRow, DeliveryRow
from storage.session import Store

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with fake_receiver() as found:
        yield found


def raise_one(store: Store, number: int = 1) -> AlertRow:
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


def due_now(store: Store) -> None:
    with store.write() as session:
        session.execute(update(table_of(Deliveries)).values(next_at=datetime.now(UTC) - timedelta(seconds=1)))


def verified(received: Received, secret: str = SECRET) -> bool:
    """The check of docs/alerts.md, to the letter."""
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(expected, received.headers["webhook-signature"])


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The reference vector of its libraries."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_fails_is_sent_again_until_it_arrives(store: Store, receiver: Receiver) -> None:
    alert, target = raise_one(store), Webhook(receiver.url, KEY)
    receiver.answers = [500, 302]
    for attempt, error in ((1, "HTTP 500"), (2, "HTTP 302")):
        assert deliver_one(store, target)
        tried = delivery(store, alert)
        assert (tried.attempts, tried.error, tried.delivered_at) == (attempt, error, None)
        assert not deliver_one(store, target)  # put off
        due_now(store)
    assert deliver_one(store, target)
    arrived = delivery(store, alert)
    assert (arrived.attempts, arrived.error, arrived.delivered_at is not None) == (3, None, True)
    due_now(store)
    assert not deliver_one(store, target)
    got = receiver.all()
    assert [each.headers["webhook-id"] for each in got] == [alert.id] * 3
    assert all(map(verified, got))
    assert not verified(got[0], "whsec_" + base64.b64encode(bytes(32)).decode())
    assert got[0].json["type"] == "coevo.alert.raised"
    assert (got[0].json["data"]["run"], got[0].json["data"]["value"]) == (RUN, 0.7)
    assert {each.body for each in got} == {body_of(alert)}
    assert "secret" not in arrived.target  # which an address may hold


def test_a_receiver_that_is_not_there_is_noted(store: Store) -> None:
    alert = raise_one(store)
    assert deliver_one(store, Webhook("http://127.0.0.1:9/hook", KEY))
    assert "ConnectError" in delivery(store, alert).error


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (f"http://{'a' * 64}.example.org/hook", "UnicodeError"),  # longer than a name in DNS may be
        ("http://example.org/hook\n", "InvalidURL"),
    ],
)
def test_an_address_that_cannot_be_is_noted(store: Store, url: str, error: str) -> None:
    alert = raise_one(store)
    assert deliver_one(store, Webhook(url, KEY))
    assert error in delivery(store, alert).error


def test_a_receiver_that_does_not_answer_is_left_at_the_limit(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 10 s; here after a tenth of one, in which it holds the request."""
    assert TIMEOUT_S == 10
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.1)
    alert, noted = raise_one(store), threading.Event()
    receiver.before_it_answers = lambda: noted.wait(60)
    assert deliver_one(store, Webhook(receiver.url, KEY))
    noted.set()
    assert "ReadTimeout" in delivery(store, alert).error


def test_it_is_tried_at_growing_distances_and_given_up_in_the_end(store: Store, receiver: Receiver) -> None:
    """docs/alerts.md: after 30 s, 1, 2, 4 minutes and so on up to an hour, 16 times."""
    alert, target = raise_one(store), Webhook(receiver.url, KEY)
    receiver.answers = [500] * (ATTEMPTS + 1)
    for seconds in (30, 60, 120, 240, 480, 960, 1920, *[3600] * 9):
        before = datetime.now(UTC)
        assert deliver_one(store, target)
        assert before <= delivery(store, alert).next_at - timedelta(seconds=seconds) <= datetime.now(UTC)
        due_now(store)
    assert not deliver_one(store, target)
    assert (delivery(store, alert).attempts, len(receiver.all())) == (ATTEMPTS, ATTEMPTS)


def test_a_sender_killed_after_sending_has_it_sent_again_under_the_same_id(
    store: Store, database_url: str, receiver: Receiver
) -> None:
    alert = raise_one(store)
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
    left = delivery(store, alert)
    assert (left.attempts, left.delivered_at) == (1, None)
    assert not deliver_one(store, Webhook(receiver.url, KEY))  # as long as the killed one may still be at it
    due_now(store)
    assert deliver_one(store, Webhook(receiver.url, KEY))
    assert [each.headers["webhook-id"] for each in receiver.all()] == [alert.id] * 2


def test_the_thread_delivers_in_order_until_its_block_ends(store: Store, receiver: Receiver) -> None:
    alerts = [raise_one(store, number) for number in (1, 2, 3)]
    with delivering(store, [Webhook(receiver.url, KEY)]):
        got = [receiver.received.get(timeout=60) for _ in alerts]
    assert [each.headers["webhook-id"] for each in got] == [each.id for each in alerts]
    assert all(delivery(store, each).delivered_at for each in alerts)
    with delivering(store, []):
        pass


def test_an_alert_that_json_does_not_have_keeps_none_of_the_others_back(store: Store, receiver: Receiver) -> None:
    """As one was stored before alerts were kept finite."""
    bad, good = raise_one(store, 1), raise_one(store, 2)
    with store.write() as session:
        session.execute(update(table_of(Alerts)).where(Alerts.id == bad.id).values(value=math.inf))
    with delivering(store, [Webhook(receiver.url, KEY)]):
        got = receiver.received.get(timeout=60)
    assert got.headers["webhook-id"] == good.id
    assert delivery(store, good).delivered_at is not None
    noted = delivery(store, bad)
    assert (noted.attempts, noted.delivered_at) == (1, None)
    assert "ValueError: Out of range float values" in noted.error


def test_a_kl_that_overflowed_arrives_as_a_number(store: Store, receiver: Receiver) -> None:
    alarm = Alarm("hacking", "stop", math.inf, 0.15, 7, "step 7: at a KL of inf nats a token")
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=CoEvolution())
        [alert] = record(session, RUN, 1, [alarm])
    assert (alert.value, alert.threshold) == (sys.float_info.max, 0.15)
    assert deliver_one(store, Webhook(receiver.url, KEY))
    data = receiver.all()[0].json["data"]
    assert data["value"] == sys.float_info.max
    assert data["text"] == f"{alarm.text}; it overflowed, 1.8e+308 stands for infinity"


def test_a_target_of_the_environment() -> None:
    given = {"COEVO_WEBHOOK_URL": "https://user:pw@example.org/x", "COEVO_WEBHOOK_SECRET": SECRET}
    target = webhook_from(given)
    assert (target.key, target.name.startswith("example.org#"), "pw" in target.name) == (KEY, True, False)
    assert webhook_from({}) is None
    with pytest.raises(WebhookError, match="COEVO_WEBHOOK_URL: expected an http or https address"):
        webhook_from({**given, "COEVO_WEBHOOK_URL": "file:///etc/passwd"})
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
            webhook_from({**given, "COEVO_WEBHOOK_URL": url})
    for wrong in ("", "whsec_AAAA", "not base64!"):
        with pytest.raises(WebhookError, match="COEVO_WEBHOOK_SECRET: expected whsec_ and 24 to 64 bytes") as refused:
            webhook_from({**given, "COEVO_WEBHOOK_SECRET": wrong})
        assert not wrong or wrong not in str(refused.value)
