from __future__ import annotations

import pytest
from fake_receiver import fake_receiver

from services import prefect_server
from services.prefect_server import PrefectServer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_server, "_PAUSES_S", (0.0, 0.0))


@pytest.mark.parametrize(
    ("answers", "status", "requests"),
    [
        ([503, 503, 201], 201, 3),  # its database was busy twice
        ([503, 503, 503, 201], 503, 3),  # for too long
        ([500, 201], 500, 1),  # nothing says that it may be asked again
        ([409, 201], 409, 1),
    ],
)
def test_what_the_server_is_too_busy_for_is_asked_again(answers: list[int], status: int, requests: int) -> None:
    with fake_receiver() as receiver:
        receiver.answers = answers
        url = receiver.url.partition("/hook")[0]
        response = PrefectServer(url, "a:b").request("POST", "/deployments/", {"name": "coevo"})
    assert response.status_code == status
    received = receiver.all()
    assert [request.json for request in received] == [{"name": "coevo"}] * requests
    assert all(request.headers["authorization"].startswith("Basic ") for request in received)
