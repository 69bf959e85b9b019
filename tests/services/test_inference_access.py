"""The key of the inference applications: how it is made, and that requests without it are refused."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.config import HTTP_PROTOCOLS

from core.asking.service import Service
from services.inference import access
from services.inference.keys import keys_of
from services.inference.server import proxy

TOKEN = "0123abcd" * 8


@pytest.fixture(autouse=True)
def _neither_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (access.KEY, "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", HTTP_PROTOCOLS["auto"])  # which `proxy.middlewares` changes


def client() -> TestClient:
    """A client of an application behind the middlewares of Ray Serve's proxy."""
    routes = [Route(path, lambda _: PlainTextResponse("answered")) for path in ("/solver/v1/models", "/-/healthz")]
    sockets = [WebSocketRoute("/solver/v1/realtime", greet)]
    return TestClient(Starlette(routes=[*routes, *sockets], middleware=proxy.middlewares()))


async def greet(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("answered")


def test_the_key_is_derived_from_ray_s_token_and_does_not_reveal_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert access.key() is None
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    assert access.key() == access.key_of(TOKEN) != access.key_of(TOKEN[::-1])
    assert TOKEN not in str(access.headers())
    monkeypatch.setenv(access.KEY, "given")  # for a process that does not know the token
    assert access.headers() == {"Authorization": "Bearer given"}


def test_every_application_asks_for_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with client() as http:
        for wrong in ({}, {"Authorization": "Bearer "}, {"Authorization": access.key_of(TOKEN)}, {"Cookie": TOKEN}):
            refused = http.get("/solver/v1/models", headers=wrong)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert access.KEY in refused.json()["error"]["message"]
        assert http.get("/solver/v1/models", headers=access.headers()).text == "answered"
        assert http.get("/-/healthz").text == "answered"  # Kubernetes calls this route, without a key


def test_a_websocket_needs_the_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with client() as http:
        with pytest.raises(WebSocketDisconnect), http.websocket_connect("/solver/v1/realtime"):
            pass
        with http.websocket_connect("/solver/v1/realtime", headers=access.headers()) as websocket:
            assert websocket.receive_text() == "answered"


def test_the_proxy_limits_headers() -> None:
    client()
    assert HTTP_PROTOCOLS["auto"] == HTTP_PROTOCOLS["h11"]


def test_applications_ask_for_no_key_where_ray_has_no_token() -> None:
    with client() as http:
        assert http.get("/solver/v1/models").text == "answered"


def test_an_application_of_ours_can_be_configured_like_an_external_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    judge = Service(url="http://127.0.0.1:8000/judge/v1", model="judge", key_variable=access.KEY)
    assert keys_of([judge]) == {access.KEY: access.key_of(TOKEN)}
