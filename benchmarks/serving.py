"""Measures the cost of Ray Serve, HTTP and our client: tokens per second of an engine in-process, and through them.

Both use the same model, prompts, seeds and sampling, with one replica and one thread, and are measured alternately in
one run. Two models are used: the tiny one, whose steps are so short that the cost of everything else shows, and one of
27M parameters with random weights.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.sampler import rate
from benchmarks.services import engines, larger_model, one_replica, own_ray, published
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL, Home, Services
from orchestrator.serving.applications import read_applications
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt
from trainers.micro import world

_ROUNDS, _VOTES = 4, 8
_SIZES = {"tiny": (128, 60), "larger": (16, 20)}  # number of prompts, most tokens of an answer


def run() -> dict[str, Any]:
    """{engine: {direct_tokens_per_s, served_tokens_per_s, ratio, parameters, tiny}} for the larger model.

    `tiny` has the figures of the tiny model.
    """
    with own_ray() as (home, services), tempfile.TemporaryDirectory() as temporary:
        parameters = larger_model(Path(temporary))
        folders = {"tiny": MICRO_MODEL, "larger": Path(temporary)}
        checkpoints = {size: published(home, folder, f"bench-{size.lower()}") for size, folder in folders.items()}
        results = dict[str, Any]()
        for engine, file in engines().items():
            by_size = {size: _compare(home, services, engine, file, size, checkpoints[size]) for size in folders}
            results[engine] = {**by_size["larger"], "parameters": parameters, "tiny": by_size["tiny"]}
        return results


def prompts_of(size: str) -> list[Prompt]:
    """The prompts that both sample for the model of this size."""
    count, limit = _SIZES[size]
    rng = random.Random(0)
    return [
        Prompt(tuple(RZERO_SOLVER.messages(world.make_problem(rng).text)), 1000 * i, _VOTES, Sampling(max_tokens=limit))
        for i in range(count)
    ]


def _compare(
    home: Home, services: Services, engine: str, file: str, size: str, checkpoint: Checkpoint
) -> dict[str, Any]:
    client, prompts = InferenceClient(services.endpoint("solver"), "solver"), prompts_of(size)
    command = [sys.executable, "-m", "benchmarks.serving_direct", engine, size, checkpoint.path]
    arguments = read_applications(file)["solver"]["args"]
    of_engine: dict[str, str] = arguments.get("llm_configs", [{}])[0].get("runtime_env", {}).get("env_vars", {})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR", **of_engine}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as direct:
        serve_checkpoints(services, {"solver": checkpoint}, one_replica(home, file))  # while the process starts

        def in_process() -> int:
            assert direct.stdin is not None
            assert direct.stdout is not None
            direct.stdin.write("again\n")
            direct.stdin.flush()
            for line in direct.stdout:
                if line.startswith('{"tokens"'):  # the engine may print other lines
                    return int(json.loads(line)["tokens"])
            raise RuntimeError("benchmarks.serving_direct ended before it printed its tokens; see its error output")

        def through_serve() -> int:
            return sum(reply.tokens for group in client.generate(prompts, checkpoint.id) for reply in group)

        tokens = {in_process(), through_serve()}  # this also warms both up
        if len(tokens) > 1:
            raise RuntimeError(f"{engine}, {size}: expected the same number of tokens from both, got {sorted(tokens)}")
        rates = [(rate(in_process), rate(through_serve)) for _ in range(_ROUNDS)]
        assert direct.stdin is not None
        assert direct.stdout is not None
        direct.stdin.close()
        direct.stdout.read()  # the engine may print while it ends, and would fail if the pipe were closed
    direct_rate, served_rate = (statistics.median(column) for column in zip(*rates, strict=True))
    ratios = [served / alone for alone, served in rates]
    return {
        "direct_tokens_per_s": round(direct_rate),
        "served_tokens_per_s": round(served_rate),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "tokens": tokens.pop(),
    }
