"""A fake OpenAI-compatible service whose replies, and failures, a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.asking.service import Service
from services.inference.breaker import breaker_of
from tests.http_server import Handler, listening

Answer = Callable[[int, dict[str, Any]], tuple[int, Any]]


@contextmanager
def fake_service(answer: Answer) -> Iterator[tuple[Service, list[tuple[str, dict[str, Any], str | None]]]]:
    """`answer(number of earlier requests, body)` gives the status and the reply. Yields the service, and the requests
    that it got: path, body, authorization."""
    requests: list[tuple[str, dict[str, Any], str | None]] = []
    lock = threading.Lock()

    class Answering(Handler):
        def do_POST(self) -> None:
            body = self.json()
            with lock:
                before = len(requests)
                requests.append((self.path, body, self.headers.get("Authorization")))
            self.answer(*answer(before, body))

    with listening(Answering) as url:
        service = Service(url=f"{url}/v1", model="m").model_copy(update={"attempts": 3})
        breaker_of(service).answered()  # an earlier service that was down may have had the same port
        yield service, requests


def lengths(_: int, body: dict[str, Any]) -> tuple[int, Any]:
    """Each text's embedding is its length and 1; the rows come in reverse order."""
    rows = [{"index": i, "embedding": [len(text), 1]} for i, text in enumerate(body["input"])]
    return 200, {"data": rows[::-1]}
