"""What the benchmarks of the inference services share: a Ray of their own, one replica of a model, the model itself."""

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
from orchestrator.serving.applications import read_applications
from services.inference import access
from storage.checkpoints import publish

FILES = {"transformers": "embedded", "vllm": "vllm-cpu"}  # engine -> its file in deploy/serve


def engines() -> dict[str, str]:
    """Those that are installed."""
    return {name: file for name, file in FILES.items() if name != "vllm" or find_spec("vllm")}


@contextmanager
def own_ray() -> Iterator[tuple[Home, Services]]:
    """A home folder that is gone afterwards, with Ray and nothing else."""
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        home = Home(Path(folder))
        services = cluster.up(home, cluster.Ports(0, 0, 0, 0, 0), lambda _line: None, only=("ray",))
        os.environ[access.KEY] = access.key_of(services.ray_token)
        try:
            yield home, services
        finally:
            del os.environ[access.KEY]
            cluster.down(home)


def printed_by(module: str, *arguments: str, home: Home, services: Services) -> Any:
    """What a module of ours prints as its last line of JSON, in a process that belongs to these services."""
    command = [sys.executable, "-m", module, *arguments]
    variables = {**environment(home, services), "PREFECT_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def one_replica(home: Home, file: str) -> Serving:
    """The file's applications with one replica each; those that are not asked are stopped."""
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
    """A model's folder as a checkpoint that the services take."""
    return publish(folder, home.checkpoints, run=run, role="base", iteration=iteration, step=0, parent=None)


def larger_model(folder: Path, hidden: int = 512, layers: int = 8) -> int:
    """Write a model with the tiny one's tokenizer and random weights into `folder`; returns its parameters.

    What it says is noise, which is all that a measurement of speed needs.
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
