"""An HTTP server in the test's own process, for the fakes that answer requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Server(ThreadingHTTPServer):
    # Clients send requests in bursts, and a client that finds the queue full tries again only after a second.
    request_queue_size = 1024


class Handler(BaseHTTPRequestHandler):
    """Reads and answers JSON, and prints nothing about requests on the terminal."""

    def log_message(self, *_: object) -> None: ...

    def json(self) -> Any:
        """The request's body."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status: int, reply: object) -> None:
        """Send `reply` as JSON, or as it is where it is bytes."""
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError):  # a client that gave up
            self.wfile.write(content)


@contextmanager
def listening(handler: type[Handler]) -> Iterator[str]:
    """Run a server with this handler for the block; yields its address."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def redirecting(url: str) -> Iterator[str]:
    """A server that answers every request with a redirection to the same path at `url`; yields its own address."""

    class Redirecting(Handler):
        def do_GET(self) -> None:
            self.send_response(307)
            self.send_header("Location", f"{url}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

    with listening(Redirecting) as address:
        yield address
