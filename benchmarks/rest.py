"""Measures how fast the REST API reads and exports a store of 1,050,000 questions and 10,000,000 votes.

It measures SQLite and PostgreSQL. `coevo store serve --workers 2` serves the API, `benchmarks/rest_load.py` sends the
requests, and both share the machine with the database. `python -m benchmarks rest 10000` measures a smaller store.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.postgres import temporary_postgresql
from benchmarks.rest_load import READERS, at_a_rate, requests, without_pause
from benchmarks.rest_store import Shape, fill, shape_of

_RATE, _SECONDS, _WORKERS = 200, 60.0, 2
_HIGHER_RATES = (250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1_000)
_PAGE_P99_MS = 50.0
# The value in docker-compose.yml. The store has 2.6 GB, of which lists of questions read 1 GB.
SHARED_BUFFERS = "2GB"
_EXPORTED = ("jsonl", "csv", "parquet", "huggingface")


def run(rows: str = "1000000", seconds: float = _SECONDS, on_postgresql: bool = True) -> dict[str, Any]:
    """The figures of both databases, with about `rows` questions that were voted on.

    - the latencies in milliseconds by kind of request, at 200 requests per second for `seconds`;
    - the highest rate at which the p99 of a page of questions is at most 50 ms;
    - the figures of 50 readers without a pause between their requests;
    - the speed of exports, and the peak of the API's memory.
    """
    shape = shape_of(int(rows))
    with tempfile.TemporaryDirectory() as folder:
        report = {"store": shape.counts, "sqlite": _measure(f"sqlite:///{folder}/coevo.db", shape, seconds)}
    if on_postgresql:
        with temporary_postgresql(shared_buffers=SHARED_BUFFERS) as url:
            skipped = {"skipped": "no PostgreSQL server programs (initdb, pg_ctl) on this machine"}
            report["postgresql"] = skipped if url is None else _measure(url, shape, seconds)
    return report


def _measure(url: str, shape: Shape, seconds: float) -> dict[str, Any]:
    start = time.perf_counter()
    fill(url, shape)
    os.sync()  # otherwise the system would still be writing during the first minutes of the measurement
    fill_s = time.perf_counter() - start
    with _serve(url, _WORKERS) as api:
        # Warm up connections, caches and prepared statements.
        at_a_rate(api.port, requests(shape, 0), _RATE / 2, seconds / 10)
        steady = at_a_rate(api.port, requests(shape, 1), _RATE, seconds)
        figures = {"offered_per_s": _RATE, **steady.figures(), **_highest_rate(api.port, shape, seconds / 6)}
        closed_loop = without_pause(api.port, requests(shape, 2), seconds / 6)
    return {
        "fill_s": round(fill_s, 1),
        "readers": READERS,
        "workers": _WORKERS,
        **figures,
        "without_pause": closed_loop.figures(),
        "exports": _exports(url, shape),
    }


def _highest_rate(port: int, shape: Shape, seconds: float) -> dict[str, Any]:
    """Raise the rate until the p99 of a page is too long, or a request fails."""
    p99_by_rate: dict[int, float] = {}
    for rate in _HIGHER_RATES:
        load = at_a_rate(port, requests(shape, rate), rate, seconds).figures()
        p99_by_rate[rate] = load["page_of_questions"]["p99_ms"]
        if p99_by_rate[rate] > _PAGE_P99_MS or load["failed"]:
            break
    met = [rate for rate, p99 in p99_by_rate.items() if p99 <= _PAGE_P99_MS]
    return {"highest_rate_met_per_s": max(met, default=None), "page_p99_ms_at_rates": p99_by_rate}


def _exports(url: str, shape: Shape) -> dict[str, Any]:
    """Export all iterations one after another, from an API with one process and no other load."""
    with _serve(url, 1) as api:
        kinds = {kind: _export(api.client, shape, kind) for kind in _EXPORTED}
        return {**kinds, "peak_rss_mb": _peak_mb(api.process.pid)}


def _export(client: httpx.Client, shape: Shape, kind: str) -> dict[str, float]:
    size, start = 0, time.perf_counter()
    for run in shape.names():
        for iteration in range(1, shape.iterations + 1):
            path = f"/api/v1/runs/{run}/export?iterations={iteration}&format={kind}"
            with client.stream("GET", path) as response:
                response.raise_for_status()
                size += sum(len(chunk) for chunk in response.iter_raw())
    seconds, rows = time.perf_counter() - start, shape.counts["questions"]
    return {
        "rows": rows,
        "rows_per_s": round(rows / seconds),
        "seconds": round(seconds, 1),
        "megabytes": round(size / 1e6, 1),
    }


def _peak_mb(pid: int) -> float | None:
    """The peak memory of a process in MB; None if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return None
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(int(line.split()[1]) * 1024 / 1e6, 1)


@dataclass(frozen=True, slots=True)
class _Api:
    port: int
    process: subprocess.Popen[bytes]
    client: httpx.Client


@contextmanager
def _serve(url: str, workers: int) -> Iterator[_Api]:
    """Run `coevo store serve` on the store, in separate processes, until the block ends."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "COEVO_HOME": home, "COEVO_DATABASE": url}
        command = [str(Path(sys.executable).parent / "coevo"), "store", "serve", "--no-keys"]
        command += ["--port", str(port), "--workers", str(workers)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
                _wait_until_ready(client, process)
                yield _Api(port, process, client)
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            client.get("/healthz").raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"coevo store serve ended with exit status {process.returncode} before it answered")
