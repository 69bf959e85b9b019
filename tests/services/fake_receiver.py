"""A receiver of webhooks: a real HTTP server in a thread, which answers as it is told and keeps what it got."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread
from typing import Any


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
    answers: list[int] = field(default_factory=list)  # statuses, one a request; 204 when there are none left
    received: Queue[Received] = field(default_factory=Queue)
    before_it_answers: Callable[[], None] = lambda: None

    def all(self) -> list[Received]:
        return [self.received.get_nowait() for _ in range(self.received.qsize())]


@contextmanager
def fake_receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.received.put(Received({name.lower(): value for name, value in self.headers.items()}, body))
            receiver.before_it_answers()
            self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/hook?token=secret")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
