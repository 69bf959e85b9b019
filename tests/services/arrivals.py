"""Tells a test that requests have arrived at an application."""

from __future__ import annotations

import threading

from starlette.types import ASGIApp, Receive, Scope, Send


class Arrivals:
    """The application; a semaphore counts the requests that have arrived."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.seen = app, threading.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.seen.release()
        await self.app(scope, receive, send)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.seen.acquire(timeout=60)
