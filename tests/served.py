"""What the tests of both engines' applications share: prompts, checkpoints, and the replicas' processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import psutil
from safetensors.torch import load_file, save_file

from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt
from storage.files.checkpoints import publish
from tests.live import Live
from tests.processes import descendants

PROMPTS = [
    Prompt(tuple(RZERO_SOLVER.messages(f"What is {a} + {a * 7}?")), 100 * a, 5, Sampling(max_tokens=60))
    for a in range(2, 30)
]


def base_checkpoint(live: Live) -> Checkpoint:
    """The shipped model."""
    return publish(MICRO_MODEL, live.home.checkpoints, run="app", role="base", iteration=0, step=0, parent=None)


def scaled_checkpoint(live: Live, folder: Path, scale: float, iteration: int) -> Checkpoint:
    """The shipped model with every weight multiplied by `scale`; its iteration distinguishes it from the others."""
    shutil.copytree(MICRO_MODEL, folder)
    tensors = {name: tensor * scale for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return publish(
        folder, live.home.checkpoints, run="app", role="solver", iteration=iteration, step=1, parent="app/base/0"
    )


def held_checkpoints(live: Live) -> dict[str, str]:
    """Application -> the checkpoint that its configuration names."""
    url = f"{live.services.dashboard_url}/api/serve/applications/"
    response = httpx.get(url, headers=live.services.ray_headers, timeout=60, trust_env=False).raise_for_status()
    configs = {
        name: next(iter(application["deployed_app_config"]["deployments"]))["user_config"]
        for name, application in response.json()["applications"].items()
    }
    return {name: config["checkpoint"] for name, config in configs.items()}


def replicas(live: Live, application: str = "solver") -> dict[int, psutil.Process]:
    """The processes of our Ray that hold an application's model, by pid."""
    return {
        process.pid: process
        for process, title in descendants(live.pid("ray"))
        if f"ServeReplica:{application}:" in title and "Ingress" not in title
    }
