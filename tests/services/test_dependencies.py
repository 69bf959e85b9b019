"""The most frequent routes share a few threads, so that they do not block the other routes."""

from __future__ import annotations

import asyncio
import threading

import httpx
from fastapi import FastAPI

from services.api.dependencies import frequent_route

FEW, REQUESTS = 3, 8


def test_frequent_routes_use_few_threads_and_other_routes_answer_meanwhile() -> None:
    app, gate = FastAPI(), threading.Event()
    inside = threading.Semaphore(0)

    @app.get("/most/{number}")
    @frequent_route
    def most(number: int) -> int:
        inside.release()
        gate.wait()
        return number

    @app.get("/other")
    def other() -> str:
        return "answered"

    async def ask() -> tuple[list[int], bool, str]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            requests = [asyncio.create_task(client.get(f"/most/{number}")) for number in range(REQUESTS)]
            for _ in range(FEW):
                assert await asyncio.to_thread(inside.acquire, timeout=60)
            meanwhile = (await client.get("/other")).json()
            more = inside.acquire(blocking=False)
            gate.set()
            return [response.json() for response in await asyncio.gather(*requests)], more, meanwhile

    answers, more, meanwhile = asyncio.run(ask())
    assert (answers, more, meanwhile) == (list(range(REQUESTS)), False, "answered")
