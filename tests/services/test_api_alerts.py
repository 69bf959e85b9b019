"""Series and alerts over REST, and who has acknowledged an alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from api_examples import RUN
from fastapi.testclient import TestClient

from services.api.access.keys import new_key
from services.drift.series import refresh
from storage import queries
from storage.rows import AlertRow
from storage.session import Store
from tests.api_server import api_of, get, post

NOW = datetime.now(UTC).replace(microsecond=0)


def alert(number: int, severity: str = "warning") -> AlertRow:
    return AlertRow(
        *(f"{number:016x}", RUN, 1, "sudden", "label_accuracy", "kept", "exact", severity),
        *(0.7, 0.6, 0.8, 400, 0.8, 0.75, f"alert {number}", NOW + timedelta(seconds=number)),
    )


@pytest.fixture
def filled(filled: Store) -> Store:
    with filled.write() as session:
        refresh(session, RUN, 1)
        queries.alerts.add_alerts(session, [alert(1), alert(2, "critical"), alert(3)])
        queries.alerts.claim_delivery(
            session, "there", max_attempts=1, lookback=timedelta(days=1), delays=[timedelta(seconds=30)]
        )
    return filled


def test_series_can_be_selected_by_name_slice_and_oracle(api: TestClient) -> None:
    everything = get(api, f"/runs/{RUN}/series")
    [point] = get(api, f"/runs/{RUN}/series", name="label_accuracy", over="kept", oracle="exact")
    assert point in everything
    assert (point["iteration"], point["value"], point["n"], point["estimated"]) == (1, 0.5, 2, False)
    assert {row["over"] for row in get(api, f"/runs/{RUN}/series", over="")} == {""}
    assert get(api, f"/runs/{RUN}/series", name="test_time") == []  # a series that this run does not have
    assert get(api, f"/runs/{RUN}/metrics", name="of_a_reward_of_ones_own") == []


def test_alerts_are_listed_in_pages_newest_first(api: TestClient) -> None:
    page = get(api, "/alerts", limit=2)
    assert [item["text"] for item in page["items"]] == ["alert 3", "alert 2"]
    rest = get(api, "/alerts", limit=2, after=page["next"])
    assert ([item["text"] for item in rest["items"]], rest["next"]) == (["alert 1"], None)
    assert [item["text"] for item in get(api, "/alerts", severity="critical")["items"]] == ["alert 2"]


def test_an_alert_has_its_deliveries(api: TestClient) -> None:
    [delivery] = get(api, f"/alerts/{1:016x}")["deliveries"]
    assert (delivery["target"], delivery["attempts"], delivery["delivered_at"]) == ("there", 1, None)
    assert get(api, f"/alerts/{2:016x}")["deliveries"][0]["attempts"] == 0


def test_an_alert_is_acknowledged_once(api: TestClient) -> None:
    first, second, missing = (f"/alerts/{number:016x}/acknowledgement" for number in (1, 2, 9))
    done = post(api, first, by="ann", note="restarted")
    assert (done["acknowledged_by"], done["note"]) == ("ann", "restarted")
    assert "ann acknowledged it" in post(api, first, 409, by="bob")["detail"]
    assert post(api, second, 422)["errors"][0]["field"] == "body.by"
    post(api, missing, 404, by="ann")
    assert [item["text"] for item in get(api, "/alerts", acknowledged=True)["items"]] == ["alert 1"]
    assert [item["text"] for item in get(api, "/alerts", acknowledged=False)["items"]] == ["alert 3", "alert 2"]


def test_with_keys_the_key_s_name_is_that_of_whoever_acknowledges(filled: Store, tmp_path: Path) -> None:
    api = api_of(filled, tmp_path, key=new_key(filled, "runner", ("run",)))
    assert post(api, f"/alerts/{1:016x}/acknowledgement", by="somebody else")["acknowledged_by"] == "runner"


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
    path = "/alerts/acknowledgement"
    assert [post(api, path, **body) for _ in range(2)] == [{"alerts": 4}, {"alerts": 0}]
    left = {(group["rule"], group["alerts"], group["text"]) for group in get(api, "/alerts/groups")}
    assert left == {("sudden", 1, "alert 6"), ("collapse", 1, "alert 4")}
    post(api, path, 404, **{**body, "run": "nosuch"})
    post(api, path, 422, **{**body, "until": "yesterday"})
