"""Measures how long a swap of weights takes under load, compared with a cold start, and whether it loses requests.

The requests name no checkpoint, so the checkpoint that is loaded answers. A request counts as lost if its status is not
200, or if its text is not the one that the checkpoint named in the reply gives to this prompt.
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
from core.settings.serving import Serving
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL, Home, Services
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference import access
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt

_SWAPS, _CALLERS = 6, 8
_SAMPLING = Sampling(temperature=0, max_tokens=60)
_PROMPTS = [Prompt(tuple(RZERO_SOLVER.messages(f"What is {a} * 3 - {a}?")), 0, 1, _SAMPLING) for a in range(3, 35)]


def run() -> dict[str, Any]:
    """{engine: {cold_start_s, swap_s, ratio, lost_requests, requests, swaps}}; times are medians, in seconds."""
    with own_ray() as (home, services), tempfile.TemporaryDirectory() as temporary:
        return {engine: _measure(home, services, file, Path(temporary)) for engine, file in engines().items()}


def _measure(home: Home, services: Services, file: str, temporary: Path) -> dict[str, Any]:
    serving = one_replica(home, file)
    first = published(home, MICRO_MODEL, f"{file}-a")
    other = temporary / file  # a model that gives other answers: the tiny one with scaled weights
    shutil.copytree(MICRO_MODEL, other)
    tensors = {name: tensor * 0.97 for name, tensor in load_file(other / "model.safetensors").items()}
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    second = published(home, other, f"{file}-b")
    cold_starts = [_cold_start(services, serving, first) for _ in range(2)]
    client = InferenceClient(services.endpoint("solver"), "solver")
    expected = {}
    for checkpoint in (second, first):
        serve_checkpoints(services, {"solver": checkpoint}, serving)
        expected[checkpoint.id] = [group[0].text for group in client.generate(_PROMPTS, checkpoint.id)]
    with _load(client.url, expected) as (answered, lost):
        swaps = [_swap(services, serving, (second, first)[i % 2], answered) for i in range(_SWAPS)]
    serve_checkpoints(services, {}, serving)
    cold_start, swap = statistics.median(cold_starts), statistics.median(swaps)
    return {
        "cold_start_s": round(cold_start, 2),
        "swap_s": round(swap, 3),
        "ratio": round(swap / cold_start, 4),
        "lost_requests": len(lost),
        "requests": len(answered) + len(lost),
        "swaps": len(swaps),
        "lost": lost[:3],
    }


def _cold_start(services: Services, serving: Serving, checkpoint: Checkpoint) -> float:
    """The seconds from no replica to the first answer. The very first call also starts Serve."""
    serve_checkpoints(services, {}, serving)
    start = time.perf_counter()
    serve_checkpoints(services, {"solver": checkpoint}, serving)
    InferenceClient(services.endpoint("solver"), "solver").generate(_PROMPTS[:1], checkpoint.id)
    return time.perf_counter() - start


def _swap(services: Services, serving: Serving, checkpoint: Checkpoint, answered: list[tuple[float, str]]) -> float:
    """The seconds from the call to the last answer by the previous checkpoint, or until all replicas have swapped."""
    answered_before = len(answered)
    start = time.perf_counter()
    serve_checkpoints(services, {"solver": checkpoint}, serving)
    end = time.perf_counter()
    while not any(time_s > end for time_s, _ in answered[answered_before:]):  # until a later request is answered
        time.sleep(0.01)
    by_previous = [time_s for time_s, answered_by in answered[answered_before:] if answered_by != checkpoint.id]
    return max([end, *by_previous]) - start


@contextmanager
def _load(url: str, expected: dict[str, list[str]]) -> Iterator[tuple[list[tuple[float, str]], list[str]]]:
    """Send requests from several callers without pauses, until the block ends.

    Yields two lists that grow meanwhile: (time, checkpoint) of each request that was answered, and a message about each
    request that was lost.
    """
    answered, lost, stopped = list[tuple[float, str]](), list[str](), threading.Event()

    def call(caller: int) -> None:
        with httpx.Client(timeout=120, trust_env=False, headers=access.headers()) as http:
            index = caller
            while not stopped.is_set():
                index = (index + 1) % len(_PROMPTS)
                answered_by, problem = _send(http, url, index, expected)
                answered.append((time.perf_counter(), answered_by)) if problem is None else lost.append(problem)

    with ThreadPoolExecutor(_CALLERS) as callers:
        futures = [callers.submit(call, caller) for caller in range(_CALLERS)]
        try:
            yield answered, lost
        finally:
            stopped.set()
            for future in futures:
                future.result()


def _send(http: httpx.Client, url: str, index: int, expected: dict[str, list[str]]) -> tuple[str, str | None]:
    """Send a prompt. Returns the checkpoint that answered, and what was wrong with the answer, if anything."""
    body = {"model": "solver", "messages": list(_PROMPTS[index].messages), "temperature": 0, "max_tokens": 60}
    try:
        response = http.post(f"{url}/chat/completions", json=body)
    except httpx.TransportError as error:
        return "", repr(error)
    if response.status_code != 200:
        return "", f"HTTP {response.status_code}: {response.text[:200]}"
    chat = response.json()
    checkpoint, text = chat["policy_version"], chat["choices"][0]["message"]["content"]
    expected_text = expected[checkpoint][index]
    return checkpoint, None if text == expected_text else f"{checkpoint}: expected {expected_text!r}, got {text!r}"
