"""How long a swap of weights takes under load, against a cold start, and whether it loses a request.

Callers ask without naming a checkpoint, so each is answered by whichever is held. A request is lost when it is not
answered with 200, or with another text than the one that the checkpoint it names gives to this prompt.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from safetensors.torch import load_file, save_file

from benchmarks.services import engines, one_replica, own_ray, published
from core.questions.prompts import solver_messages
from core.settings.serving import Serving
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL, Home, Services
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference import access
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt

_SWAPS, _CALLERS = 6, 8
_SAMPLING = Sampling(temperature=0, max_tokens=60)
_PROMPTS = [Prompt(tuple(solver_messages(f"What is {a} * 3 - {a}?")), 0, 1, _SAMPLING) for a in range(3, 35)]


def run() -> dict[str, Any]:
    """{engine: {cold_start_s, swap_s, ratio, lost_requests, requests, swaps}}; times are medians, in seconds."""
    with own_ray() as (home, services), tempfile.TemporaryDirectory() as made:
        return {engine: _measured(home, services, file, Path(made)) for engine, file in engines().items()}


def _measured(home: Home, services: Services, file: str, made: Path) -> dict[str, Any]:
    serving = one_replica(home, file)
    first, second = published(home, MICRO_MODEL, f"{file}-a"), published(home, _other(made / file), f"{file}-b")
    cold = [_cold_start(services, serving, first) for _ in range(2)]
    client = InferenceClient(services.endpoint("solver"), "solver")
    expected = {}
    for checkpoint in (second, first):
        serve_checkpoints(services, {"solver": checkpoint}, serving)
        expected[checkpoint.id] = [group[0].text for group in client.generate(_PROMPTS, checkpoint.id)]
    with _load(client.url, expected) as (answered, lost):
        swaps = [_swap(services, serving, (second, first)[i % 2], answered) for i in range(_SWAPS)]
    serve_checkpoints(services, {}, serving)
    cold_start, swap = statistics.median(cold), statistics.median(swaps)
    return {
        "cold_start_s": round(cold_start, 2),
        "swap_s": round(swap, 3),
        "ratio": round(swap / cold_start, 4),
        "lost_requests": len(lost),
        "requests": len(answered) + len(lost),
        "swaps": len(swaps),
        "lost": lost[:3],
    }


def _other(folder: Path) -> Path:
    shutil.copytree(MICRO_MODEL, folder)
    tensors = {name: tensor * 0.97 for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def _cold_start(services: Services, serving: Serving, checkpoint: Checkpoint) -> float:
    """From no replica to the first answer; Serve itself is up but for the very first time."""
    serve_checkpoints(services, {}, serving)
    started = time.perf_counter()
    serve_checkpoints(services, {"solver": checkpoint}, serving)
    InferenceClient(services.endpoint("solver"), "solver").generate(_PROMPTS[:1], checkpoint.id)
    return time.perf_counter() - started


def _swap(services: Services, serving: Serving, checkpoint: Checkpoint, answered: list[tuple[float, str]]) -> float:
    """From the order to the last answer by the checkpoint before, or to the end of the wait for all replicas."""
    before = len(answered)
    started = time.perf_counter()
    serve_checkpoints(services, {"solver": checkpoint}, serving)
    ended = time.perf_counter()
    while not any(at > ended for at, _ in answered[before:]):  # the load goes on
        time.sleep(0.01)
    old = [at for at, maker in answered[before:] if maker != checkpoint.id]
    return max([ended, *old]) - started


@contextmanager
def _load(url: str, expected: dict[str, list[str]]) -> Iterator[tuple[list[tuple[float, str]], list[str]]]:
    """Callers without a pause between their requests; (when, by whom) of what was answered, and what was lost."""
    answered, lost, over = list[tuple[float, str]](), list[str](), threading.Event()

    def call(caller: int) -> None:
        with httpx.Client(timeout=120, trust_env=False, headers=access.headers()) as http:
            index = caller
            while not over.is_set():
                index = (index + 1) % len(_PROMPTS)
                maker, problem = _asked(http, url, index, expected)
                answered.append((time.perf_counter(), maker)) if problem is None else lost.append(problem)

    with ThreadPoolExecutor(_CALLERS) as callers:
        running = [callers.submit(call, caller) for caller in range(_CALLERS)]
        try:
            yield answered, lost
        finally:
            over.set()
            for future in running:
                future.result()


def _asked(http: httpx.Client, url: str, index: int, expected: dict[str, list[str]]) -> tuple[str, str | None]:
    """Who answered, and what was wrong with it."""
    body = {"model": "solver", "messages": list(_PROMPTS[index].messages), "temperature": 0, "max_tokens": 60}
    try:
        response = http.post(f"{url}/chat/completions", json=body)
    except httpx.TransportError as error:
        return "", repr(error)
    if response.status_code != 200:
        return "", f"HTTP {response.status_code}: {response.text[:200]}"
    chat = response.json()
    maker, text = chat["policy_version"], chat["choices"][0]["message"]["content"]
    return maker, None if expected[maker][index] == text else f"{maker}: {text!r} for {expected[maker][index]!r}"
