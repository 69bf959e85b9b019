"""Generates load on the REST API, for `python -m benchmarks rest`.

Requests arrive at random at a fixed mean rate (a Poisson process), whether or not earlier ones have been answered, and
are sent over 50 connections. Independent people and programs send requests in this way. In a closed loop, each of 50
readers would send its next request only after its answer. The latency would then be 50 divided by the throughput, and a
server that stalls would get fewer requests at that moment. So latency is measured from the moment when a request is
due, including the time that it waits for a free connection. A closed loop is available too, to measure the largest
throughput.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from benchmarks.rest_store import VOTES, Shape
from services.api.pages import cursor

READERS = 50
PAGE = 50
_PATIENCE_S = 30.0
_LENGTH = re.compile(rb"content-length: (\d+)")
# How frequent each kind of request is, in percent.
_SHARES = {
    "page by index": 20,
    "page by p_hat": 12,
    "page of a verdict": 12,
    "page that an oracle calls wrong": 8,
    "page deep in the list": 18,
    "page with a text": 1,
    "one question": 12,
    "one vote": 2,
    "statistics": 3,
    "label accuracy": 1,
    "series": 2,
    "runs": 2,
    "stages": 2,
    "iterations": 1,
    "evaluations": 1,
    "checkpoints": 1,
    "one checkpoint": 1,
    "metrics of a name": 1,
}
PAGES = tuple(name for name in _SHARES if name.startswith("page") and name != "page with a text")


@dataclass(frozen=True, slots=True)
class Timing:
    """The result of one request."""

    kind: str
    seconds: float  # from the moment when it was due to the last byte of its answer
    status: int | None  # of its answer; None without an answer

    @property
    def answered(self) -> bool:
        """Whether its answer was a success."""
        return self.status == 200


@dataclass(frozen=True, slots=True)
class Load:
    """The results of all requests of a measurement."""

    timings: Sequence[Timing]
    seconds: float  # from the start of the measurement to the last answer

    def figures(self) -> dict[str, Any]:
        """Requests per second, latencies by kind of request, and failures."""
        kinds = {name: self.latency((name,)) for name in _SHARES}
        return {
            "requests": len(self.timings),
            "requests_per_s": round(len(self.timings) / self.seconds, 1),
            "failed": sum(not timing.answered for timing in self.timings),
            "every_route": self.latency(tuple(_SHARES)),
            "page_of_questions": self.latency(PAGES),
            "routes": {name: figures for name, figures in kinds.items() if figures},
        }

    def latency(self, kinds: Sequence[str]) -> dict[str, float] | None:
        """The p50 and p99 of these kinds in milliseconds, with their n; None if there was no such request."""
        milliseconds = [1_000 * timing.seconds for timing in self.timings if timing.kind in kinds]
        if not milliseconds:
            return None
        p50, p99 = np.percentile(milliseconds, [50, 99])
        return {"n": len(milliseconds), "p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}


def requests(shape: Shape, seed: int) -> Iterator[tuple[str, str]]:
    """Endless random requests as (kind, path), with the frequencies of `_SHARES`."""
    rng, kinds, shares = random.Random(seed), list(_SHARES), list(_SHARES.values())
    while True:
        [kind] = rng.choices(kinds, shares)
        yield kind, f"/api/v1{_path(rng, kind, shape)}"


def _path(rng: random.Random, kind: str, shape: Shape) -> str:
    run = f"/runs/{rng.choice(shape.names())}"
    iteration = f"{run}/iterations/{rng.randint(1, shape.iterations)}"
    index, p_hat = rng.randrange(shape.questions), rng.randint(1, 9) / 10
    ascending = rng.random() < 0.5
    pages: dict[str, Callable[[], str]] = {
        "page by index": lambda: "",
        "page by p_hat": lambda: f"&sort={'' if ascending else '-'}p_hat&after={cursor((p_hat, index))}",
        "page of a verdict": lambda: f"&verdict={rng.choice(('kept', 'too_easy', 'too_hard', 'malformed'))}",
        "page that an oracle calls wrong": lambda: "&oracle=exact&oracle_verdict=wrong",
        "page deep in the list": lambda: f"&after={cursor((index,))}",
        "page with a text": lambda: f"&text={rng.choice(('marbles', 'hana%20has%201', 'nobody%20knows'))}",
    }
    if kind in pages:
        return f"{iteration}/questions?limit={PAGE}{pages[kind]()}"
    return {
        "one question": f"{iteration}/questions/{index}",
        "one vote": f"{iteration}/questions/{index - index % 21}/votes/{rng.randrange(VOTES)}",
        "statistics": f"{iteration}/statistics",
        "label accuracy": f"{run}/series?name=label_accuracy",
        "series": f"{run}/series",
        "runs": "/runs",
        "stages": f"{run}/stages",
        "iterations": f"{run}/iterations",
        "evaluations": f"{run}/evaluations",
        "checkpoints": f"{run}/checkpoints",
        "one checkpoint": f"{run}/checkpoints/solver/{rng.randint(1, shape.iterations)}",
        "metrics of a name": f"{run}/metrics?name=reward_mean",
    }[kind]


def at_a_rate(port: int, requests_to_send: Iterable[tuple[str, str]], rate: float, seconds: float) -> Load:
    """Send `rate` requests per second on average for `seconds`, each when it is due."""
    rng, due_s, schedule = random.Random(0), 0.0, []
    for kind, path in requests_to_send:
        due_s += rng.expovariate(rate)
        if due_s > seconds:
            break
        schedule.append((due_s, kind, path))
    start = time.perf_counter()
    return measure(port, ((start + due_s, kind, path) for due_s, kind, path in schedule))


def without_pause(port: int, requests_to_send: Iterable[tuple[str, str]], seconds: float) -> Load:
    """Send requests for `seconds` in a closed loop: each reader sends the next one after its answer."""
    end = time.perf_counter() + seconds
    due_now = ((time.perf_counter(), kind, path) for kind, path in requests_to_send)
    return measure(port, takewhile(lambda request: request[0] < end, due_now))


Due = tuple[float, str, str]  # when a request is due by the performance counter, its kind, its path


def measure(port: int, requests_due: Iterator[Due], key: str | None = None) -> Load:
    """Send each request when it is due, with the API's key if there is one, and wait for the last answer."""
    start, timings = time.perf_counter(), list[Timing]()
    headers = "Host: 127.0.0.1\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")

    async def all_readers() -> None:
        """The readers share `requests_due`: a free reader takes the next request and waits until it is due."""
        await asyncio.gather(*(_reader(port, requests_due, headers, timings) for _ in range(READERS)))

    asyncio.run(all_readers())
    return Load(timings, time.perf_counter() - start)


async def _reader(port: int, requests_due: Iterator[Due], headers: str, timings: list[Timing]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for due, kind, path in requests_due:
        if (wait_s := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        status, closes = None, True
        with suppress(OSError, asyncio.IncompleteReadError):  # a TimeoutError is an OSError
            async with asyncio.timeout(_PATIENCE_S):
                # The request is written by hand: an HTTP client would take too much of the two cores from the server.
                writer.write(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                await reader.readexactly(int(length[1]) if length else 0)
                status, closes = int(head[9:12]), b"\r\nconnection: close\r\n" in head.lower()
        timings.append(Timing(kind, time.perf_counter() - due, status))
        if closes:
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
