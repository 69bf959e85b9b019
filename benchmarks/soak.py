"""`python -m benchmarks soak`: an hour of requests to the REST API and the dashboard while runs work.

One run after another works on the tiny model, each with the same seed, while 50 requests a second arrive at random: all
routes that read, of a run that has ended and of the one that works, and the pages. Afterwards every run must have
stored what a run without load has stored, no request may have failed, and the API's memory must not have grown.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from benchmarks.rest_load import Load, measure
from orchestrator.check.start import find_run
from orchestrator.installation import cluster
from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, Services
from orchestrator.installation.ports import ANY_FREE
from storage.session import DATABASE_ERRORS, Store, open_store
from tests.chaos import small_run
from tests.chaos.contents import Contents, contents_of, differences

_RATE = 50
_ALONE = "soak-alone"  # the run without load
_SAMPLE_S = 5.0
_OF_ANY_RUN = ("", "/stages", "/iterations", "/series", "/checkpoints", "/evaluations")  # also of one that just began
_QUERIES = {  # of the routes that need one; some compare two runs or models, and are left out
    "/comparison/settings": f"run={_ALONE}",
    "/comparison/figures": f"run={_ALONE}",
    "/comparison/series": f"run={_ALONE}&name=reward_mean&by=step",
    "/comparison/latest": f"run={_ALONE}&name=label_accuracy",
    "/evaluations/{evaluation}/record": "item=0",
}
_PAGES = ("/", "/compare", "/alerts", "/evaluations", "/label", "/api/docs", "/api/openapi.json", "/healthz")
_COEVO = Path(sys.executable).parent / "coevo"


def run(seconds: str = "3600") -> dict[str, Any]:
    """Start services in a temporary home, soak them, and return the figures."""
    with tempfile.TemporaryDirectory(prefix="coevo-soak-") as folder:
        home = Home(Path(folder) / "home")
        open_store(home.database, create=True).close()
        services = cluster.up(home, ANY_FREE, lambda _line: None)
        try:
            return _soak(home, services, float(seconds))
        finally:
            cluster.down(home)


def _soak(home: Home, services: Services, seconds: float) -> dict[str, Any]:
    """Send `_RATE` requests per second for `seconds` while runs work one after another; the last one is awaited."""
    store, variables = open_store(home.database), {**environment(home, services), "PREFECT_LOGGING_LEVEL": "ERROR"}
    settings = small_run.overrides(1, small_run.write_benchmark(home.path), own_processes=False)
    if failure := _work(store, _ALONE, settings, variables):
        raise RuntimeError(failure)
    alone = _stored(home, store, _ALONE)
    paths, left_out = _paths(services, home.api_key)
    print(f"{len(paths)} routes are asked; these do not answer: {', '.join(left_out)}", file=sys.stderr, flush=True)
    names, over = [_ALONE], Event()
    with ThreadPoolExecutor(3) as threads:
        memory = threads.submit(_memory_until, over, home)
        load = threads.submit(_load, services, home.api_key, paths, names, seconds)
        different: dict[str, list[str]] = {}
        try:
            while not load.done():
                name = f"soaked-{len(names):04d}"
                try:
                    failure = _work(store, name, settings, variables, names)
                    sentences = [failure] if failure else differences(alone, _stored(home, store, name))
                except DATABASE_ERRORS as error:  # the figures of an hour are not lost with it
                    sentences = [f"{name}: {error}"]
                if sentences:
                    different[name] = [sentence[:1_000] for sentence in sentences[:5]]
                print(f"{name}: {len(sentences)} differences", file=sys.stderr, flush=True)
        finally:
            over.set()
    store.close()
    figures = load.result().figures()
    return {
        **{name: figures[name] for name in ("requests", "requests_per_s", "failed")},
        "failures": _failures(load.result()),
        "routes": len(paths) + len(_OF_ANY_RUN) + len(_PAGES),
        "routes_left_out": left_out,
        "latency": load.result().latency(sorted({timing.kind for timing in load.result().timings})),
        "runs": len(names) - 1,
        "different_runs": different,
        "memory_mb": _growth(memory.result()),
    }


def _work(
    store: Store, name: str, settings: Mapping[str, Any], variables: Mapping[str, str], begun: list[str] | None = None
) -> str | None:
    """Work on a run to its end. Returns what it printed last if it failed. Its name is added to `begun` as soon as the
    API knows it."""
    assignments = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    command = [str(_COEVO), "run", small_run.PRESET, "--name", name, *assignments]
    command.append(f"--iterations={small_run.ITERATIONS}")
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        if begun is not None:
            while process.poll() is None and find_run(store, name) is None:
                time.sleep(0.1)
            begun.append(name)
        printed, _ = process.communicate()
    return f"{name} failed:\n{printed.decode(errors='replace')[-1_000:]}" if process.returncode else None


def _stored(home: Home, store: Store, name: str) -> Contents:
    with store.read() as session:
        return contents_of(session, home.texts, name)


def _paths(services: Services, key: str) -> tuple[list[str], list[str]]:
    """Paths of all routes that read and that answer 200 for the run that has ended, and the routes that do not."""
    values = {"run": _ALONE, "iteration": 1, "index": 0, "sample_index": 0, "role": "solver", "step": 1, "prompt": 0}
    values |= {"rollout": 0}
    paths, left_out = list[str](), list[str]()
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=services.api_url, headers=headers, trust_env=False, timeout=60) as client:
        evaluations = client.get("/api/v1/evaluations", params={"run": _ALONE}).raise_for_status().json()
        values["evaluation"] = evaluations[0]["id"]
        described = client.get("/api/openapi.json").json()["paths"]
        for route in (route for route, methods in described.items() if "get" in methods):
            path = re.sub(r"\{(\w+)\}", lambda name: str(values.get(name[1], "none")), route)
            if (query := _QUERIES.get(route.removeprefix("/api/v1"))) is not None:
                path += f"?{query}"
            (paths if client.get(path).status_code == 200 else left_out).append(path)
    return paths, left_out


def _load(services: Services, key: str, paths: list[str], names: list[str], seconds: float) -> Load:
    rng, start = random.Random(0), time.perf_counter()

    def due() -> Iterator[tuple[float, str, str]]:
        at = 0.0
        while (at := at + rng.expovariate(_RATE)) < seconds:
            kind = rng.choice(("read", "read", "now", "page"))
            if kind == "read":
                path = rng.choice(paths)
            elif kind == "now":
                path = f"/api/v1/runs/{names[-1]}{rng.choice(_OF_ANY_RUN)}"
            else:
                path = rng.choice((*_PAGES, f"/runs/{names[-1]}"))
            yield start + at, path, path

    return measure(urlsplit(services.api_url).port or 80, due(), key)


def _failures(load: Load) -> dict[str, int]:
    failed = [timing for timing in load.timings if not timing.answered]
    return dict(Counter(f"{timing.kind}: {timing.status or 'no answer'}" for timing in failed).most_common(20))


def _memory_until(over: Event, home: Home) -> dict[str, list[float]]:
    """Service -> the resident megabytes of its processes together, every few seconds."""
    samples: dict[str, list[float]] = {}
    while not over.wait(_SAMPLE_S):
        for pid, (name, _) in home.services().processes.items():
            if name in ("api", "runner"):
                root = psutil.Process(pid)
                resident = sum(process.memory_info().rss for process in (root, *root.children(recursive=True)))
                samples.setdefault(name, []).append(resident / 1e6)
    return samples


def _growth(samples: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """The medians of the second tenth of the samples, when caches are warm, and of the last one."""
    figures = {}
    for name, megabytes in samples.items():
        tenth = max(1, len(megabytes) // 10)
        warm_samples = megabytes[tenth : 2 * tenth] or megabytes
        warm, end = statistics.median(warm_samples), statistics.median(megabytes[-tenth:])
        figures[name] = {"warm": warm, "end": end, "growth": end - warm, "most": max(megabytes)}
    return {name: {key: round(value, 1) for key, value in of_one.items()} for name, of_one in figures.items()}
