"""Measures what an iteration's data set costs without the time for sampling.

It runs the stages `generate_questions` and `label_questions`, with ten votes per question, on an engine that answers at
once (scripted_engine.py). Apart from sampling, everything is done as in a run: requests (with one chat each), votes,
rows in an SQLite store, and texts.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.settings.parsing import load_config
from core.settings.training import Sampling
from core.types import Checkpoint, Stage, checkpoint_id
from orchestrator.installation.home import PRESETS, Home, Services
from orchestrator.ledger import run_once
from orchestrator.run import Run
from orchestrator.stages.by_name import STAGE_FUNCTIONS
from orchestrator.stages.context import Context
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt
from storage import queries
from storage.session import open_store

_RUN, _VOTES = "scripted", 10
_STAGES: tuple[Stage, ...] = ("generate_questions", "label_questions")
_REQUESTS, _PAUSE_S, _AT_ONCE = 2_000, 0.05, 256


@dataclass(frozen=True, slots=True)
class _ScriptedContext(Context):
    """The context of a stage whose applications need not be started."""

    @contextmanager
    def serving(self, *_: Any, **__: Any) -> Iterator[None]:
        yield


def data_set(candidates: int) -> dict[str, float]:
    """The seconds of each stage for `candidates` questions, and this process's processor time and peak memory in MB."""
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder, scripted_engine(0) as url:
        home = Home(Path(folder))
        store = open_store(home.database, create=True)
        settings = {"dataset.candidates": candidates, "dataset.votes": _VOTES}
        config = load_config(PRESETS / "demo.toml", settings)
        base = checkpoint_id(_RUN, "base", 0)
        with store.write() as session:
            queries.runs.create_run(session, name=_RUN, config=config)
            queries.checkpoints.add_checkpoint(
                session, Checkpoint(base, _RUN, "base", 0, 0, "/base", "0" * 64, None), {}
            )
        services = Services("", "", url, "", "", {})
        stages, cpu_start = dict[str, float](), time.process_time()
        for stage in _STAGES:
            context = _ScriptedContext(Run(_RUN, home, store, services, config), 1, stage, lambda *_: None)
            start = time.perf_counter()
            run_once(store, context.key, partial(STAGE_FUNCTIONS[stage], context))
            stages[f"{stage}_s"] = round(time.perf_counter() - start, 2)
        with store.read() as session:
            votes = len(queries.questions.rollouts_of(session, _RUN, 1))
        if votes != candidates * _VOTES:
            raise RuntimeError(f"{_RUN}: expected {candidates * _VOTES} votes in the store, got {votes}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = round(sum(stages.values()), 2)
    return {"total_s": total, **stages, "cpu_s": round(time.process_time() - cpu_start, 2), "memory_mb": round(memory)}


def client_cpu_ms() -> dict[str, float]:
    """The client's processor time per request, in milliseconds, with 256 requests at once to an engine that pauses."""
    prompts = [Prompt(({"role": "user", "content": "?" * 300},), i, _VOTES, Sampling()) for i in range(_REQUESTS)]
    with scripted_engine(_PAUSE_S) as url:
        client = InferenceClient(f"{url}/solver/v1", "solver", concurrency=_AT_ONCE)
        client.generate(prompts[:_AT_ONCE], "a")  # warm up
        cpu_start, start = time.process_time(), time.perf_counter()
        client.generate(prompts, "a")
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return {
        "client_cpu_ms_per_request": round(cpu_seconds / _REQUESTS * 1000, 3),
        "requests": _REQUESTS,
        "at_once": _AT_ONCE,
        "seconds": round(seconds, 2),
        "least_seconds": round(_REQUESTS / _AT_ONCE * _PAUSE_S, 2),
    }


@contextmanager
def scripted_engine(pause_s: float) -> Iterator[str]:
    """Run the scripted engine in a separate process until the block ends, and yield its address."""
    command = [sys.executable, "-m", "benchmarks.scripted_engine", str(pause_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        process.stdin.close()
