"""Series and alerts over REST: keys that may read can read them, keys that may run can acknowledge an alert once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient

from services.api.access.keys import new_key
from services.api.app import PREFIX, create_app
from services.client import ApiError, Client
from services.drift.series import refresh
from storage import queries
from storage.rows import AlertRow, SeriesPoint
from storage.session import Store
from tests.api_server import served

NOW = datetime.now(UTC).replace(microsecond=0)


def alert(number: int, severity: str = "warning") -> AlertRow:
    return AlertRow(
        *(f"{number:016x}", RUN, 1, "sudden", "label_accuracy", "kept", "exact", severity),
        *(0.7, 0.6, 0.8, 400, 0.8, 0.75, f"alert {number}", NOW + timedelta(seconds=number)),
    )


@pytest.fixture
def filled(store: Store) -> Store:
    fill(store)
    with store.write() as session:
        refresh(session, RUN, 1)
        queries.alerts.add_alerts(session, [alert(1), alert(2, "critical"), alert(3)])
        queries.alerts.claim_delivery(
            session, "there", max_attempts=1, lookback=timedelta(days=1), delays=[timedelta(seconds=30)]
        )
    return store


@pytest.fixture
def api(filled: Store, tmp_path: Path) -> TestClient:
    return TestClient(create_app(filled, tmp_path, ask_for_keys=False), base_url="http://localhost")


def get(api: TestClient, path: str, status: int = 200, **parameters: Any) -> Any:
    response = api.get(PREFIX + path, params=parameters)
    assert response.status_code == status, response.text
    return response.json()


def acknowledge(api: TestClient, number: int, status: int, **body: Any) -> Any:
    response = api.post(f"{PREFIX}/alerts/{number:016x}/acknowledgement", json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_series_can_be_selected_by_name_slice_and_oracle(api: TestClient) -> None:
    everything = get(api, f"/runs/{RUN}/series")
    [point] = get(api, f"/runs/{RUN}/series", name="label_accuracy", over="kept", oracle="exact")
    assert point in everything
    assert (point["iteration"], point["value"], point["n"], point["estimated"]) == (1, 0.5, 2, False)
    assert {row["over"] for row in get(api, f"/runs/{RUN}/series", over="")} == {""}
    assert "no such run" in get(api, "/runs/nobody/series", 404)["detail"]
    refused = get(api, f"/runs/{RUN}/series", 422, name="label_acuracy")["detail"]
    assert refused.startswith(
        "query.name: label_acuracy: no such series (did you mean label_accuracy?); expected one of "
    )
    assert get(api, f"/runs/{RUN}/series", name="test_time") == []  # a series that this run does not have
    assert get(api, f"/runs/{RUN}/metrics", name="of_a_reward_of_ones_own") == []


def test_alerts_are_listed_in_pages_newest_first(api: TestClient) -> None:
    page = get(api, "/alerts", limit=2)
    assert [item["text"] for item in page["items"]] == ["alert 3", "alert 2"]
    rest = get(api, "/alerts", limit=2, after=page["next"])
    assert ([item["text"] for item in rest["items"]], rest["next"]) == (["alert 1"], None)
    assert [item["text"] for item in get(api, "/alerts", severity="critical")["items"]] == ["alert 2"]
    assert "run another: no such run" in get(api, "/alerts", 404, run="another")["detail"]
    assert "expected `next`" in get(api, "/alerts", 400, after="f" * 16)["detail"]


def test_an_alert_has_its_deliveries(api: TestClient) -> None:
    [delivery] = get(api, f"/alerts/{1:016x}")["deliveries"]
    assert (delivery["target"], delivery["attempts"], delivery["delivered_at"]) == ("there", 1, None)
    assert get(api, f"/alerts/{2:016x}")["deliveries"][0]["attempts"] == 0
    get(api, f"/alerts/{9:016x}", 404)


def test_an_alert_is_acknowledged_once(api: TestClient) -> None:
    done = acknowledge(api, 1, 200, by="ann", note="restarted")
    assert (done["acknowledged_by"], done["note"]) == ("ann", "restarted")
    assert "ann acknowledged it at" in acknowledge(api, 1, 409, by="bob")["detail"]
    assert "expected a name" in acknowledge(api, 2, 422)["detail"]
    acknowledge(api, 9, 404, by="ann")
    assert [item["text"] for item in get(api, "/alerts", acknowledged=True)["items"]] == ["alert 1"]
    assert [item["text"] for item in get(api, "/alerts", acknowledged=False)["items"]] == ["alert 3", "alert 2"]


def test_another_site_s_page_cannot_acknowledge_an_alert(api: TestClient) -> None:
    path = f"{PREFIX}/alerts/{1:016x}/acknowledgement"
    assert api.post(path, json={"by": "ann"}, headers={"origin": "https://evil.example"}).status_code == 403
    assert api.post(path, content='{"by": "ann"}', headers={"content-type": "text/plain"}).status_code == 415
    assert get(api, f"/alerts/{1:016x}")["alert"]["acknowledged_at"] is None


def test_with_keys_acknowledging_needs_the_scope_run_and_stores_the_key_s_name(filled: Store, tmp_path: Path) -> None:
    reader, runner = new_key(filled, "reader", ("read",)), new_key(filled, "runner", ("read", "run"))
    app = create_app(filled, tmp_path, ask_for_keys=True)
    path = f"{PREFIX}/alerts/{1:016x}/acknowledgement"
    for key, status in ((reader, 403), (runner, 200)):
        api = TestClient(app, base_url="http://localhost", headers={"Authorization": f"Bearer {key}"})
        response = api.post(path, json={"by": "somebody else"})
        assert response.status_code == status, response.text
    assert response.json()["acknowledged_by"] == "runner"


def test_the_client_reads_series_and_acknowledges_alerts(filled: Store, tmp_path: Path) -> None:
    with served(create_app(filled, tmp_path, ask_for_keys=False)) as url:
        client = Client(url)
        assert [listed["text"] for listed in client.items("/alerts", run=RUN)] == ["alert 3", "alert 2", "alert 1"]
        assert [listed["text"] for listed in client.items("/alerts", severity="critical")] == ["alert 2"]
        with filled.read() as session:
            points = [SeriesPoint(**point) for point in client.get(f"/runs/{RUN}/series", name="held_out")]
            assert points == queries.series.series_of(session, RUN, "held_out")
        path = f"/alerts/{alert(3).id}"
        by_ann = client.send("POST", f"{path}/acknowledgement", json={"by": "ann"})
        assert (by_ann["acknowledged_by"], client.get(path)["alert"]["acknowledged_by"]) == ("ann", "ann")
        with pytest.raises(ApiError, match="HTTP 409: alert 0000000000000003: ann acknowledged it"):
            client.send("POST", f"{path}/acknowledgement", json={"by": "bob"})


def test_open_alerts_are_grouped_by_run_and_rule_and_acknowledged_together(api: TestClient, filled: Store) -> None:
    with filled.write() as session:
        other = replace(alert(4, "critical"), rule="collapse", iteration=3)
        queries.alerts.add_alerts(session, [other, replace(alert(5), iteration=4)])
    groups = get(api, "/alerts/groups")
    shown = [tuple(group[name] for name in ("rule", "severity", "alerts", "text")) for group in groups]
    assert shown == [("sudden", "critical", 4, "alert 5"), ("collapse", "critical", 1, "alert 4")]
    assert (groups[0]["first_iteration"], groups[0]["last_iteration"]) == (1, 4)
    assert [group["alerts"] for group in get(api, "/alerts/groups", severity="warning")] == [3]
    with filled.write() as session:
        queries.alerts.add_alerts(session, [alert(6)])  # after somebody has looked
    body = {"run": RUN, "rule": "sudden", "until": groups[0]["raised_at"], "by": "ann"}
    path = f"{PREFIX}/alerts/acknowledgement"
    assert [api.post(path, json=body).json() for _ in range(2)] == [{"alerts": 4}, {"alerts": 0}]
    left = {(group["rule"], group["alerts"], group["text"]) for group in get(api, "/alerts/groups")}
    assert left == {("sudden", 1, "alert 6"), ("collapse", 1, "alert 4")}
    assert api.post(path, json={**body, "run": "nosuch"}).status_code == 404
    assert api.post(path, json={**body, "until": "yesterday"}).status_code == 422


def test_acknowledging_together_needs_the_scope_run(filled: Store, tmp_path: Path) -> None:
    api = TestClient(create_app(filled, tmp_path, ask_for_keys=True))
    key = new_key(filled, "viewer", ("read",))
    body = {"run": RUN, "rule": "sudden", "until": NOW.isoformat()}
    headers = {"Authorization": f"Bearer {key}"}
    assert api.post(f"{PREFIX}/alerts/acknowledgement", json=body, headers=headers).status_code == 403
    assert api.get(f"{PREFIX}/alerts/groups", headers=headers).status_code == 200
