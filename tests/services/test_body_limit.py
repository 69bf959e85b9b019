"""A request's body that is larger than any the API needs, or that arrives slowly, is refused."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from services.api.access import body_limit
from services.api.access.body_limit import LARGEST
from services.api.app import PREFIX, create_app
from storage.session import Store
from tests.api_server import address_of, read_until_closed, served

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def store(sqlite: Store) -> Store:
    """A store that these tests do not read."""
    return sqlite


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused(store: Store, tmp_path: Path, keys: bool, chunked: bool) -> None:
    api = TestClient(create_app(store, tmp_path, ask_for_keys=keys), "http://127.0.0.1:8080")
    body = (b" " * 1_024 for _ in range(LARGEST // 1_024 + 1)) if chunked else b" " * (LARGEST + 1)
    response = api.post(f"{PREFIX}/runs", headers=JSON, content=body)
    detail = "the request's body: expected at most 65,536 bytes, got more"
    assert (response.status_code, response.json()["detail"]) == (413, detail)
    assert response.headers["content-type"] == "application/problem+json"
    fits = api.post(f"{PREFIX}/runs", headers=JSON, content=b" " * (LARGEST - 2) + b"{}")
    assert fits.status_code == (401 if keys else 422)


@pytest.mark.parametrize("head", [b"Content-Length: 1000", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("dripping", [False, True])
def test_a_slow_body_is_refused_and_its_connection_closed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, dripping: bool
) -> None:
    """Also one that arrives byte by byte, which gets no more time for it."""
    monkeypatch.setattr(body_limit, "LONGEST_S", 0.3)
    part = b"1\r\n \r\n" if b"chunked" in head else b" "
    request = f"POST {PREFIX}/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n".encode()
    with (
        served(create_app(store, tmp_path, ask_for_keys=True)) as url,
        socket.create_connection(address_of(url)) as connection,
    ):
        connection.sendall(request + head + b"\r\n\r\n" + part)
        if dripping:
            with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012
                for _ in range(3_000):
                    time.sleep(0.01)
                    connection.sendall(part)
        else:
            assert read_until_closed(connection).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
