from __future__ import annotations

import pytest
from fake_receiver import fake_receiver

from services.prefect.server import PrefectServer
from tests.fake_clock import FakeClock, fake_clock


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return fake_clock(monkeypatch)


def test_a_request_is_not_repeated_after_its_time(clock: FakeClock) -> None:
    with fake_receiver() as receiver:
        receiver.answers = [503, 503, 201]
        receiver.before_it_answers = lambda: clock.sleep(6.0)
        server = PrefectServer(receiver.url.partition("/hook")[0])
        assert server.request("POST", "/deployments/", {}, timeout_s=10.0).status_code == 503
    assert len(receiver.all()) == 2


@pytest.mark.parametrize(
    ("answers", "status", "requests"),
    [
        ([503, 503, 201], 201, 3),  # Prefect's database is busy twice
        ([503] * 5 + [201], 503, 5),  # it is busy for too long
        ([500, 201], 500, 1),  # the reply does not say that the request may be sent again
        ([409, 201], 409, 1),
    ],
)
def test_a_request_is_sent_again_while_the_server_is_busy(answers: list[int], status: int, requests: int) -> None:
    with fake_receiver() as receiver:
        receiver.answers = answers
        url = receiver.url.partition("/hook")[0]
        response = PrefectServer(url, "a:b").request("POST", "/deployments/", {"name": "coevo"})
    assert response.status_code == status
    received = receiver.all()
    assert [request.json for request in received] == [{"name": "coevo"}] * requests
    assert all(request.headers["authorization"].startswith("Basic ") for request in received)
