"""Connections are closed from time to time so that they spread over processes, and when a client sends nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from http.client import HTTPConnection
from queue import Queue
from urllib.parse import urlsplit

import h11
import pytest
import uvicorn
from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from uvicorn.config import HTTP_PROTOCOLS

from services.api.access import connections
from services.api.access.connections import LIMITS_S, Spreading, TimelyH11, limit_every_uvicorn
from tests.api_server import served

POST = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\n"
TOO_LONG_S = 30.0  # no test needs to wait as long
LARGE, PART = 1 << 25, 1 << 16  # bytes; far more than the kernel keeps for a client that does not read
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"


def test_every_twentieth_response_closes_its_connection() -> None:
    app = FastAPI()
    app.get("/")(lambda: "here")
    app.add_middleware(Spreading)
    with TestClient(app) as client:
        responses = [client.get("/" if i % 2 else "/nowhere") for i in range(60)]
    assert [i for i, response in enumerate(responses) if response.headers.get("connection") == "close"] == [19, 39, 59]
    assert {response.status_code for response in responses} == {200, 404}


@pytest.fixture(scope="module")
def gave_up() -> Queue[None]:
    """Gets an entry when the answer of /large ends."""
    return Queue()


@pytest.fixture(scope="module")
def may_read() -> threading.Semaphore:
    """Lets /later read the body of one request."""
    return threading.Semaphore(0)


@pytest.fixture(scope="module")
def address(gave_up: Queue[None], may_read: threading.Semaphore) -> Iterator[tuple[str, int]]:
    app = FastAPI()

    @app.post("/")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.post("/later")
    async def length_later(request: Request) -> int:
        await to_thread.run_sync(may_read.acquire)
        return len(await request.body())

    @app.get("/large")
    async def large() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            try:
                for _ in range(LARGE // PART):
                    yield bytes(PART)
            finally:
                gave_up.put(None)

        return StreamingResponse(parts())

    with served(app) as url:
        yield "127.0.0.1", urlsplit(url).port or 0


def read_until_closed(connection: socket.socket) -> bytes:
    """Everything that the server sends until it closes the connection; fails after `TOO_LONG_S`."""
    connection.settimeout(TOO_LONG_S)
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize(
    ("state", "sent"),
    [
        (h11.IDLE, b""),
        (h11.IDLE, b"GET / HTTP/1.1\r\nHost: here\r\nX-"),
        (h11.SEND_BODY, POST),
        (h11.SEND_BODY, POST + b"1"),
    ],
)
def test_a_connection_with_half_a_request_is_closed_after_the_limit(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, state: type[h11.IDLE], sent: bytes
) -> None:
    monkeypatch.setitem(LIMITS_S, state, 0.2)
    with socket.create_connection(address) as connection:
        connection.sendall(sent)
        assert read_until_closed(connection) == b""


@pytest.mark.parametrize("head", [b"Content-Length: 1000000000", b"Transfer-Encoding: chunked"])
def test_a_body_that_arrives_byte_by_byte_has_no_more_time(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setitem(LIMITS_S, h11.SEND_BODY, 0.2)
    part = b"1\r\n \r\n" if b"chunked" in head else b" "
    with socket.create_connection(address) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\n" + head + b"\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012
            for _ in range(10**6):
                connection.sendall(part)


def test_half_a_second_request_of_a_connection_is_closed_after_the_limit_too(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS_S, h11.IDLE, 0.2)
    with closing(HTTPConnection(*address)) as client:
        client.request("POST", "/", b"12")
        assert client.getresponse().read() == b"2"
        client.sock.sendall(b"GET /")
        assert read_until_closed(client.sock) == b""


def test_a_request_that_arrives_in_parts_within_the_limit_is_answered(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS_S, h11.SEND_BODY, TOO_LONG_S)
    with socket.create_connection(address) as connection:
        for part in (POST[:20], POST[20:], b"1", b"2"):
            connection.sendall(part)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("header", [b"X-Long: " + b"x" * 1_000_000, b"\r\n".join([b"X-Many: x"] * 100_000)])
def test_large_headers_are_refused(address: tuple[str, int], header: bytes) -> None:
    with socket.create_connection(address) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # the server closed the connection before the whole header was sent
        assert read_until_closed(connection).partition(b"\r\n")[0] in (b"HTTP/1.1 400 Bad Request", b"")


def test_a_client_is_not_late_while_the_application_does_not_read_the_body(
    address: tuple[str, int], may_read: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_passed, late = threading.Event(), TimelyH11._late

    def noted(connection: TimelyH11, state: object) -> None:
        late(connection, state)
        limit_passed.set()

    monkeypatch.setitem(LIMITS_S, h11.SEND_BODY, 0.2)
    monkeypatch.setattr(TimelyH11, "_late", noted)
    with closing(HTTPConnection(*address)) as client:
        client.request("POST", "/later", bytes(20 * PART))
        assert limit_passed.wait(TOO_LONG_S)
        may_read.release()
        assert client.getresponse().read() == b"%d" % (20 * PART)


def test_a_client_that_does_not_read_the_answer_loses_its_connection(
    address: tuple[str, int], gave_up: Queue[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.2)
    with socket.create_connection(address) as connection:
        connection.sendall(GET_LARGE)
        gave_up.get(timeout=TOO_LONG_S)
        assert size_until_closed(connection) < LARGE


def test_a_client_that_reads_gets_the_whole_answer(address: tuple[str, int], gave_up: Queue[None]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(GET_LARGE)
        assert size_until_closed(connection) > LARGE
        gave_up.get(timeout=TOO_LONG_S)


def size_until_closed(connection: socket.socket) -> int:
    connection.settimeout(TOO_LONG_S)
    return sum(map(len, iter(lambda: connection.recv(PART), b"")))


def test_servers_that_do_not_choose_their_parser_of_http_have_the_limits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect and Ray Serve are such servers."""
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", HTTP_PROTOCOLS["auto"])
    limit_every_uvicorn()
    config = uvicorn.Config(FastAPI())
    config.load()
    assert config.http_protocol_class is TimelyH11
