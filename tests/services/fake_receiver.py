"""A receiver of webhooks: a real HTTP server in a thread that answers with chosen statuses and stores its requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

from tests.http_server import Handler, listening


@dataclass
class Received:
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    url: str
    answers: list[int] = field(default_factory=list)  # the next statuses, one for each request; then 204
    received: Queue[Received] = field(default_factory=Queue)
    before_it_answers: Callable[[], None] = lambda: None

    def all(self) -> list[Received]:
        return [self.received.get_nowait() for _ in range(self.received.qsize())]


@contextmanager
def fake_receiver() -> Iterator[Receiver]:
    class Receiving(Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.received.put(Received({name.lower(): value for name, value in self.headers.items()}, body))
            receiver.before_it_answers()
            self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
            self.end_headers()

    with listening(Receiving) as url:
        receiver = Receiver(f"{url}/hook?token=secret")
        yield receiver
