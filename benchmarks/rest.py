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
from pathlib import Path
from typing import Any

import httpx

from benchmarks.postgres import temporary_postgresql
from benchmarks.rest_load import READERS, at_a_rate, requests, without_pause
from benchmarks.rest_store import Shape, fill, shape_of
from core.waiting.polling import wait_until

_RATE, _SECONDS, _WORKERS = 200, 60.0, 2
# The value in docker-compose.yml. The store has 2.6 GB, of which lists of questions read 1 GB.
SHARED_BUFFERS = "2GB"
_EXPORTED = ("jsonl", "csv", "parquet", "huggingface")


def run(rows: str = "1000000", seconds: float = _SECONDS, on_postgresql: bool = True) -> dict[str, Any]:
    """The figures of both databases, with about `rows` questions that were voted on.

    - the latencies in milliseconds by kind of request, at 200 requests per second for `seconds`;
    - the figures of 50 readers without a pause between their requests;
    - the speed of exports by format.
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
    with _serve(url, _WORKERS) as port:
        # Warm up connections, caches and prepared statements.
        at_a_rate(port, requests(shape, 0), _RATE / 2, seconds / 10)
        steady = at_a_rate(port, requests(shape, 1), _RATE, seconds)
        closed_loop = without_pause(port, requests(shape, 2), seconds / 6)
    # All iterations are exported one after another, from an API with one process and no other load.
    with _serve(url, 1) as port:
        exports = {kind: _export(port, shape, kind) for kind in _EXPORTED}
    return {
        "fill_s": round(fill_s, 1),
        "readers": READERS,
        "workers": _WORKERS,
        "offered_per_s": _RATE,
        **steady.figures(),
        "without_pause": closed_loop.figures(),
        "exports": exports,
    }


def _export(port: int, shape: Shape, kind: str) -> dict[str, float]:
    size, start = 0, time.perf_counter()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
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


@contextmanager
def _serve(url: str, workers: int) -> Iterator[int]:
    """Run `coevo store serve` on the store, in separate processes, until the block ends; yields its port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "COEVO_HOME": home, "COEVO_DATABASE": url}
        command = [str(Path(sys.executable).parent / "coevo"), "store", "serve", "--no-keys"]
        command += ["--port", str(port), "--workers", str(workers)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

        def answers() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"coevo store serve ended with exit status {process.returncode}, before it answered")
            try:
                return httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).is_success
            except httpx.TransportError:
                return False

        try:
            if not wait_until(answers, 120, 0.1):
                raise TimeoutError("coevo store serve: expected an answer within 120 s")
            yield port
        finally:
            process.terminate()
            process.wait()
