"""Connections are closed from time to time so that they spread over processes; large headers and too many connections
are refused."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.api.access.connections import UVICORN, Spreading, limit_every_uvicorn
from tests.api_server import address_of, read_until_closed, served
from tests.live import wait_until


def application() -> FastAPI:
    app = FastAPI()
    app.get("/")(lambda: "here")
    return app


def test_every_twentieth_response_closes_its_connection() -> None:
    app = application()
    app.add_middleware(Spreading)
    with TestClient(app) as client:
        responses = [client.get("/" if i % 2 else "/nowhere") for i in range(60)]
    assert [i for i, response in enumerate(responses) if response.headers.get("connection") == "close"] == [19, 39, 59]
    assert {response.status_code for response in responses} == {200, 404}


@pytest.mark.parametrize("header", [b"X-Long: " + b"x" * 1_000_000, b"\r\n".join([b"X-Many: x"] * 100_000)])
def test_large_headers_are_refused(header: bytes) -> None:
    with served(application()) as url, socket.create_connection(address_of(url)) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # the server closed the connection before the whole header was sent
        assert read_until_closed(connection).partition(b"\r\n")[0] in (b"HTTP/1.1 400 Bad Request", b"")


def test_more_connections_than_a_process_may_have_are_answered_with_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UVICORN, "limit_concurrency", 3)
    with served(application()) as url:

        def status() -> int:
            with closing(HTTPConnection(*address_of(url))) as client:
                client.request("GET", "/")
                return client.getresponse().status

        with ExitStack() as idle:
            for _ in range(3):
                idle.enter_context(socket.create_connection(address_of(url)))
            assert status() == 503
        wait_until(lambda: status() == 200, "the idle connections to be gone")


def test_servers_that_do_not_choose_their_parser_of_http_have_the_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect and Ray Serve are such servers."""
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", HTTP_PROTOCOLS["auto"])
    limit_every_uvicorn()
    config = uvicorn.Config(FastAPI())
    config.load()
    assert config.http_protocol_class is H11Protocol
