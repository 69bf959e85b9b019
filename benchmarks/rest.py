"""How fast the REST API reads a store of 1,050,000 questions and 10,000,000 votes, and exports it, on both databases.

The API is served as `coevo api --workers 2` serves it, the readers are those of `benchmarks/rest_load.py`, and all of
them share the machine with the database. `COEVO_BENCH_ROWS` makes a smaller store. `COEVO_BENCH_DATABASE` is the
address of one that is to be kept: it is filled when it is not there or empty, and only it is measured.
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
from sqlalchemy import make_url

from benchmarks.postgres import temporary_postgresql
from benchmarks.rest_load import READERS, at_a_rate, at_once, requests
from benchmarks.rest_store import FULL, Shape, fill, shape_of
from storage import queries
from storage.errors import StoreError
from storage.session import open_store

_RATE, _SECONDS, _WORKERS = 200, 60.0, 2
_HIGHER = (250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1_000)
_PAGE_P99_MS = 50.0
# As docker-compose.yml has it. The store is 2.6 GB, and what lists of questions read of it is 1 GB.
SHARED_BUFFERS = "2GB"
_EXPORTED = ("jsonl", "csv", "parquet", "huggingface")


def run(rows: int | None = None, seconds: float = _SECONDS, on_postgresql: bool = True) -> dict[str, Any]:
    """Latencies in milliseconds by kind of request at 200 requests a second for some seconds, the highest rate at which
    the p99 of a page is at most 50 ms, what 50 readers without a pause get, and exports with their peak of memory."""
    shape = shape_of(rows or int(os.environ.get("COEVO_BENCH_ROWS", FULL.runs * FULL.iterations * FULL.voted)))
    kept = os.environ.get("COEVO_BENCH_DATABASE")
    if kept is not None:
        return {"store": shape.counts, make_url(kept).get_backend_name(): _measure(kept, shape, seconds)}
    with tempfile.TemporaryDirectory() as folder:
        report = {"store": shape.counts, "sqlite": _measure(f"sqlite:///{folder}/coevo.db", shape, seconds)}
    if on_postgresql:
        with temporary_postgresql(shared_buffers=SHARED_BUFFERS) as url:
            skipped = {"skipped": "no PostgreSQL server programs (initdb, pg_ctl) on this machine"}
            report["postgresql"] = skipped if url is None else _measure(url, shape, seconds)
    return report


def _measure(url: str, shape: Shape, seconds: float) -> dict[str, Any]:
    started = time.perf_counter()
    if not _is_filled(url):
        fill(url, shape)
        os.sync()  # otherwise the first minutes of reading are also the last ones of writing
    filled = time.perf_counter() - started
    with _served(url, _WORKERS) as api:
        at_a_rate(api.port, requests(shape, 0), _RATE / 2, seconds / 10)  # connections, caches, prepared statements
        steady = at_a_rate(api.port, requests(shape, 1), _RATE, seconds)
        figures = {"offered_per_s": _RATE, **steady.figures(), **_highest(api.port, shape, seconds / 6)}
        without_pause = at_once(api.port, requests(shape, 2), seconds / 6)
    return {
        "fill_s": round(filled, 1),
        "readers": READERS,
        "workers": _WORKERS,
        **figures,
        "without_pause": without_pause.figures(),
        "exports": _exports(url, shape),
    }


def _is_filled(url: str) -> bool:
    try:
        with open_store(url).read() as session:
            return queries.runs.list_runs(session) != []
    except StoreError:
        return False


def _highest(port: int, shape: Shape, seconds: float) -> dict[str, Any]:
    """Rates upwards until a page takes too long, or a request fails."""
    tried: dict[int, float] = {}
    for rate in _HIGHER:
        load = at_a_rate(port, requests(shape, rate), rate, seconds).figures()
        tried[rate] = load["page_of_questions"]["p99_ms"]
        if tried[rate] > _PAGE_P99_MS or load["failed"]:
            break
    met = [rate for rate, p99 in tried.items() if p99 <= _PAGE_P99_MS]
    return {"highest_rate_met_per_s": max(met, default=None), "page_p99_ms_at_rates": tried}


def _exports(url: str, shape: Shape) -> dict[str, Any]:
    """All iterations, one after another, by an API of one process that does nothing else."""
    with _served(url, 1) as api:
        kinds = {kind: _exported(api.client, shape, kind) for kind in _EXPORTED}
        return {**kinds, "peak_rss_mb": _peak_mb(api.process.pid)}


def _exported(client: httpx.Client, shape: Shape, kind: str) -> dict[str, float]:
    size, started = 0, time.perf_counter()
    for run in shape.names():
        for iteration in range(1, shape.iterations + 1):
            path = f"/api/v1/runs/{run}/iterations/{iteration}/exports/{kind}"
            with client.stream("GET", path) as answer:
                answer.raise_for_status()
                size += sum(len(chunk) for chunk in answer.iter_raw())
    seconds, rows = time.perf_counter() - started, shape.counts["questions"]
    return {
        "rows": rows,
        "rows_per_s": round(rows / seconds),
        "seconds": round(seconds, 1),
        "megabytes": round(size / 1e6, 1),
    }


def _peak_mb(pid: int) -> float | None:
    """The most memory that a process ever had, in MB; None where the system does not say."""
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
def _served(url: str, workers: int) -> Iterator[_Api]:
    """`coevo api` on the store, in processes of its own, until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "COEVO_HOME": home, "COEVO_DATABASE": url}
        command = [str(Path(sys.executable).parent / "coevo"), "api", "--no-keys"]
        command += ["--port", str(port), "--workers", str(workers)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
                _wait(client, process)
                yield _Api(port, process, client)
        finally:
            process.terminate()
            process.wait()


def _wait(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            client.get("/healthz").raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"coevo api ended with {process.returncode} before it answered")
