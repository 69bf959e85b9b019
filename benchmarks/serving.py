"""What Ray Serve, HTTP and our client cost: tokens per second of an engine in-process and through all of them.

The same model, prompts, seeds and sampling, in turns in one run, one replica and one thread each; for the tiny model,
whose steps are so short that everything around them shows, and for one of 27M parameters with random weights.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.services import engines, larger_model, one_replica, own_ray, published
from core.questions.prompts import solver_messages
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL, Home, Services
from orchestrator.serving.applications import read_applications
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt
from trainers.micro import world

_ROUNDS, _VOTES = 4, 8
_SIZES = {"tiny": (128, 60), "larger": (16, 20)}  # prompts, tokens an answer at most


def run() -> dict[str, Any]:
    """{engine: {direct_tokens_per_s, served_tokens_per_s, ratio, parameters, tiny: the same for the tiny model}}."""
    with own_ray() as (home, services), tempfile.TemporaryDirectory() as made:
        parameters = larger_model(Path(made))
        folders = {"tiny": MICRO_MODEL, "larger": Path(made)}
        checkpoints = {size: published(home, folder, f"bench-{size.lower()}") for size, folder in folders.items()}
        measured = dict[str, Any]()
        for engine, file in engines().items():
            by_size = {size: _compared(home, services, engine, file, size, checkpoints[size]) for size in folders}
            measured[engine] = {**by_size["larger"], "parameters": parameters, "tiny": by_size["tiny"]}
        return measured


def prompts_of(size: str) -> list[Prompt]:
    """What both are asked."""
    count, limit = _SIZES[size]
    rng = random.Random(0)
    return [
        Prompt(tuple(solver_messages(world.make_problem(rng).text)), 1000 * i, _VOTES, Sampling(max_tokens=limit))
        for i in range(count)
    ]


def _compared(
    home: Home, services: Services, engine: str, file: str, size: str, checkpoint: Checkpoint
) -> dict[str, Any]:
    client, prompts = InferenceClient(services.endpoint("solver"), "solver"), prompts_of(size)
    command = [sys.executable, "-m", "benchmarks.serving_direct", engine, size, checkpoint.path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR", **_environment(file)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as direct:
        serve_checkpoints(services, {"solver": checkpoint}, one_replica(home, file))  # while the other starts, too

        def in_process() -> int:
            assert direct.stdin is not None
            assert direct.stdout is not None
            direct.stdin.write("again\n")
            direct.stdin.flush()
            return int(json.loads(_answer(direct.stdout))["tokens"])

        def through_serve() -> int:
            return sum(reply.tokens for group in client.generate(prompts, checkpoint.id) for reply in group)

        tokens = {in_process(), through_serve()}  # both are warm then
        if len(tokens) > 1:
            raise RuntimeError(f"{engine}, {size}: both must sample the same, got {tokens} tokens")
        rates = [(_rate(in_process), _rate(through_serve)) for _ in range(_ROUNDS)]
        assert direct.stdin is not None
        assert direct.stdout is not None
        direct.stdin.close()
        direct.stdout.read()  # what an engine says while it ends: it would complain of a closed pipe
    own, served = (statistics.median(column) for column in zip(*rates, strict=True))
    return {
        "direct_tokens_per_s": round(own),
        "served_tokens_per_s": round(served),
        "ratio": round(statistics.median(b / a for a, b in rates), 3),
        "ratios": [round(b / a, 3) for a, b in rates],
        "tokens": tokens.pop(),
    }


def _environment(file: str) -> dict[str, str]:
    arguments = read_applications(file)["solver"]["args"]
    variables: dict[str, str] = arguments.get("llm_configs", [{}])[0].get("runtime_env", {}).get("env_vars", {})
    return variables


def _answer(lines: Any) -> str:
    """The next line of ours: an engine may print its own."""
    for line in lines:
        if line.startswith('{"tokens"'):
            return str(line)
    raise RuntimeError("the engine in a process of its own ended")


def _rate(sample: Callable[[], int]) -> float:
    started = time.perf_counter()
    return sample() / (time.perf_counter() - started)
