"""Helpers that the benchmarks of the inference services share: a separate Ray, a single replica, and a larger model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from core.settings.serving import Serving
from core.types import Checkpoint
from orchestrator.installation import cluster
from orchestrator.installation.environment import environment
from orchestrator.installation.home import MICRO_MODEL, Home, Services
from orchestrator.installation.ports import ANY_FREE
from orchestrator.serving.applications import read_applications
from services.inference import access
from storage.files.checkpoints import publish

FILES = {"transformers": "embedded", "vllm": "vllm-cpu"}  # engine -> its Serve file in deploy/serve


def engines() -> dict[str, str]:
    """The engines that are installed, with their Serve files."""
    return {name: file for name, file in FILES.items() if name != "vllm" or find_spec("vllm")}


@contextmanager
def own_ray() -> Iterator[tuple[Home, Services]]:
    """Start Ray, and no other service, in a temporary home folder, and stop it when the block ends."""
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        home = Home(Path(folder))
        services = cluster.up(home, ANY_FREE, lambda _line: None, only=("ray",))
        os.environ[access.KEY] = access.key_of(services.ray_token)
        try:
            yield home, services
        finally:
            del os.environ[access.KEY]
            cluster.down(home)


def printed_by(module: str, *arguments: str, home: Home, services: Services) -> Any:
    """Run one of our modules in a process that uses these services, and return the JSON in its last line of output."""
    command = [sys.executable, "-m", module, *arguments]
    variables = {**environment(home, services), "PREFECT_LOGGING_LEVEL": "ERROR"}
    process = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(process.stdout.splitlines()[-1])


def one_replica(home: Home, file: str) -> Serving:
    """The settings to serve a file with one replica per application, and to stop applications that are not used."""
    applications = read_applications(file)
    for application in applications.values():
        if "llm_configs" in application["args"]:
            application["args"]["llm_configs"][0]["deployment_config"]["num_replicas"] = 1
        else:
            application["deployments"][0]["num_replicas"] = 1
    path = home.path / f"{file}-one.yaml"
    path.write_text(yaml.safe_dump({"applications": list(applications.values())}))
    return Serving(applications=str(path), release=True)


def published(home: Home, folder: Path, run: str, iteration: int = 0) -> Checkpoint:
    """Publish a model folder as a checkpoint that the services can load."""
    return publish(folder, home.checkpoints, run=run, role="base", iteration=iteration, step=0, parent=None)


def larger_model(folder: Path, hidden: int = 512, layers: int = 8) -> int:
    """Write a model with random weights and the tiny model's tokenizer to `folder`; returns its number of parameters.

    Random weights are enough to measure speed.
    """
    disable_progress_bar()
    torch.manual_seed(0)
    config: Any = AutoConfig.from_pretrained(MICRO_MODEL)
    heads = hidden // config.head_dim
    config.update(
        {
            "hidden_size": hidden,
            "intermediate_size": 3 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "layer_types": ["full_attention"] * layers,
            "max_window_layers": layers,
        }
    )
    model: Any = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(MICRO_MODEL).save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())
