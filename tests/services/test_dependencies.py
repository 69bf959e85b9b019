"""The routes that are asked most share a few threads, and keep nobody else from theirs."""

from __future__ import annotations

import asyncio
import threading

import httpx
from fastapi import FastAPI

from services.api.dependencies import frequent_route

FEW, ASKED = 3, 8


def test_a_few_threads_answer_what_is_asked_most() -> None:
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
            asked = [asyncio.create_task(client.get(f"/most/{number}")) for number in range(ASKED)]
            for _ in range(FEW):
                assert await asyncio.to_thread(inside.acquire, timeout=60)
            meanwhile = (await client.get("/other")).json()
            more = inside.acquire(blocking=False)
            gate.set()
            return [answer.json() for answer in await asyncio.gather(*asked)], more, meanwhile

    answers, more, meanwhile = asyncio.run(ask())
    assert (answers, more, meanwhile) == (list(range(ASKED)), False, "answered")
