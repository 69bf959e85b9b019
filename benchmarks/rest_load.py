"""Readers of the REST API, for `coevo bench rest`.

Requests arrive at a fixed mean rate, at random (a Poisson process), whether or not those before have been answered, and
go out over 50 connections. That is how people and programs that know nothing of each other ask. In a closed loop, where
each of 50 readers asks again as soon as it has its answer, the latency says nothing but 50 divided by the throughput,
and a server that stalls is asked less just then. So latency is counted from the moment that a request was due, the time
that it waits for a free connection included. A closed loop is here too, to say what the server can do at the most.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
# Requests of each kind, of a hundred.
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
class Asked:
    """One request: its kind, seconds from when it was due to the last byte of its answer, whether that was a 200."""

    kind: str
    seconds: float
    answered: bool


@dataclass(frozen=True, slots=True)
class Load:
    """What came of some seconds of requests."""

    asked: Sequence[Asked]
    seconds: float  # from the first that was due to the last answer
    own_cpu: float  # seconds of the generator's own process

    def figures(self) -> dict[str, Any]:
        """Requests a second, milliseconds by kind of request, what failed, and the generator's share of one core."""
        kinds = {name: self.latency((name,)) for name in _SHARES}
        return {
            "requests": len(self.asked),
            "requests_per_s": round(len(self.asked) / self.seconds, 1),
            "failed": sum(not request.answered for request in self.asked),
            "every_route": self.latency(tuple(_SHARES)),
            "page_of_questions": self.latency(PAGES),
            "routes": {name: figures for name, figures in kinds.items() if figures},
            "generator_cpu_share": round(self.own_cpu / self.seconds, 2),
        }

    def latency(self, kinds: Sequence[str]) -> dict[str, float] | None:
        """p50 and p99 in milliseconds with their n; None without one."""
        taken = [1_000 * request.seconds for request in self.asked if request.kind in kinds]
        if not taken:
            return None
        p50, p99 = np.percentile(taken, [50, 99])
        return {"n": len(taken), "p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}


def requests(shape: Shape, seed: int) -> Iterator[tuple[str, str]]:
    """Kinds of requests and their paths, at random by their shares, without end."""
    rng, kinds, shares = random.Random(seed), list(_SHARES), list(_SHARES.values())
    while True:
        [kind] = rng.choices(kinds, shares)
        yield kind, f"/api/v1{_path(rng, kind, shape)}"


def _path(rng: random.Random, kind: str, shape: Shape) -> str:
    run = f"/runs/{rng.choice(shape.names())}"
    iteration = f"{run}/iterations/{rng.randint(1, shape.iterations)}"
    index, p_hat = rng.randrange(shape.questions), rng.randint(1, 9) / 10
    upwards = rng.random() < 0.5
    pages: dict[str, Callable[[], str]] = {
        "page by index": lambda: "",
        "page by p_hat": lambda: f"&sort={'' if upwards else '-'}p_hat&after={cursor((p_hat, index))}",
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


def at_a_rate(port: int, wanted: Iterable[tuple[str, str]], rate: float, seconds: float) -> Load:
    """`rate` requests a second on average for some seconds, each sent when it is due."""
    rng, due, planned = random.Random(0), 0.0, []
    for kind, path in wanted:
        due += rng.expovariate(rate)
        if due > seconds:
            break
        planned.append((due, kind, path))
    start = time.perf_counter()
    return _measured(port, ((start + due, kind, path) for due, kind, path in planned))


def at_once(port: int, wanted: Iterable[tuple[str, str]], seconds: float) -> Load:
    """As many as are answered: a request is due as soon as a reader is free."""
    end = time.perf_counter() + seconds
    free = ((time.perf_counter(), kind, path) for kind, path in wanted)
    return _measured(port, takewhile(lambda due: due[0] < end, free))


_Due = tuple[float, str, str]  # when it is due by the performance counter, its kind, its path


def _measured(port: int, due: Iterator[_Due]) -> Load:
    started, cpu = time.perf_counter(), time.process_time()
    asked = asyncio.run(_all(port, due))
    return Load(asked, time.perf_counter() - started, time.process_time() - cpu)


async def _all(port: int, due: Iterator[_Due]) -> list[Asked]:
    """The readers share `due`: whoever is free takes the next one, and waits until its time."""
    asked: list[Asked] = []
    await asyncio.gather(*(_reader(port, due, asked) for _ in range(READERS)))
    return asked


async def _reader(port: int, due: Iterator[_Due], asked: list[Asked]) -> None:
    stream, out = await asyncio.open_connection("127.0.0.1", port)
    for moment, kind, path in due:
        if (early := moment - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answered, last = await _ask(stream, out, path)
        except (OSError, asyncio.IncompleteReadError):  # a TimeoutError is an OSError
            answered, last = False, True
        asked.append(Asked(kind, time.perf_counter() - moment, answered))
        if last:
            out.close()
            stream, out = await asyncio.open_connection("127.0.0.1", port)
    out.close()


async def _ask(stream: asyncio.StreamReader, out: asyncio.StreamWriter, path: str) -> tuple[bool, bool]:
    """Whether it was answered, and whether the connection ends with that. Written out, because an HTTP client would
    take more of the two cores than what is measured can spare."""
    out.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = await stream.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    await stream.readexactly(int(length[1]) if length else 0)
    return head.startswith(b"HTTP/1.1 200"), b"\r\nconnection: close\r\n" in head.lower()
