"""Reads the Serve config files of deploy/serve and checks whether a run can use them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import yaml

from core.settings.parsing import ConfigError
from core.validation.suggestions import no_such
from orchestrator.installation.home import APPLICATIONS
from services.inference.serve import Application

ROLES = ("challenger", "solver")
INSTALL_VLLM = "for GPUs run `.venv/bin/pip install -e '.[vllm]'`, for a CPU deploy/vllm-cpu.sh (docs/gpu.md)"


def read_applications(name: str) -> dict[str, Application]:
    """The applications of a file by their names. `name` is that of a file in deploy/serve, or a path.

    An application with `deployments` swaps checkpoints, and its first deployment holds them. The others hold the model
    that the file names. Raises `ConfigError`.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else APPLICATIONS / f"{name}.yaml"
    source = f"serving.applications: {name}"
    if not path.is_file():
        known = sorted(file.stem for file in APPLICATIONS.glob("*.yaml"))
        raise ConfigError(f"{source}: {no_such('file', known, name, ', or the path of a YAML file')}")
    try:
        # The C loader is ten times as fast, and GET /presets reads the file of every preset.
        config = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        applications = {application["name"]: application for application in config["applications"]}
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{source}: expected a Serve config file with `applications`, each with a name") from error
    for role in ROLES:
        if not applications.get(role, {}).get("deployments"):
            raise ConfigError(
                f"{source}: expected an application {role} with `deployments`, of which the first holds the checkpoint"
            )
    return applications


def is_vllm(application: Application) -> bool:
    """Whether vLLM is the application's engine: such an application has the arguments of `ray.serve.llm`."""
    return "llm_configs" in (application.get("args") or {})


def dtype_of(application: Application) -> Literal["float32", "bfloat16"]:
    """The type in which an application takes weights: that in which it computes, or float32 if the file does not say
    it, as vLLM narrows them itself."""
    if is_vllm(application):
        engine = application["args"]["llm_configs"][0].get("engine_kwargs", {})
        return "bfloat16" if engine.get("dtype") == "bfloat16" else "float32"
    return "float32" if (application.get("args") or {}).get("device", "cpu") == "cpu" else "bfloat16"


def gpus_of(application: Application) -> float:
    """What a replica reserves of Ray's GPUs, over its tensor-parallel ranks."""
    if not is_vllm(application):
        deployment = (application.get("deployments") or [{}])[0]
        return float(deployment.get("ray_actor_options", {}).get("num_gpus", 0))
    placement = application["args"]["llm_configs"][0].get("placement_group_config")
    if placement is None:
        return float(ranks_of(application))
    if per_worker := placement.get("bundle_per_worker"):
        return float(per_worker.get("GPU", 0)) * ranks_of(application)
    return float(sum(bundle.get("GPU", 0) for bundle in placement.get("bundles", [])))


def ranks_of(application: Application) -> int:
    """The GPUs over which a replica spreads its model."""
    engine = application["args"]["llm_configs"][0].get("engine_kwargs", {}) if is_vllm(application) else {}
    ranks: int = engine.get("tensor_parallel_size", 1) * engine.get("pipeline_parallel_size", 1)
    return ranks


def gpu_left_by(applications: dict[str, Application], names: Sequence[str]) -> float:
    """The share of a GPU that a worker of the trainer reserves beside the applications `names`: what they leave if they
    reserve a part of each, else all."""
    shares = [gpus_of(applications[name]) / ranks_of(applications[name]) for name in names]
    return 1.0 - max((share for share in shares if share < 1), default=0.0)


def engine_of(name: str) -> dict[str, str]:
    """The engine of a file's application `solver`, and the versions of the packages that it samples with."""
    engine = "vllm" if is_vllm(read_applications(name)["solver"]) else "embedded"
    packages = ("vllm", "torch") if engine == "vllm" else ("torch", "transformers")
    return {"name": engine, **{package: version_of(package) for package in packages}}


@cache
def version_of(package: str) -> str:
    """The version of the distribution that a package is imported from: vLLM's CPU build is called `vllm-cpu`."""
    try:
        return version(package)
    except PackageNotFoundError:  # only then the metadata of all are read, which takes half a second
        return version(packages_distributions()[package][0])


def refuse_missing(name: str, required: Sequence[str]) -> None:
    """Raise `ConfigError` if the file lacks an application in `required`."""
    applications = read_applications(name)
    if missing := [application for application in required if application not in applications]:
        raise ConfigError(
            f"serving.applications: {name} has no application {', '.join(missing)}; it has {', '.join(applications)}"
        )


def refuse_missing_engine(name: str) -> None:
    """Raise `ConfigError` if an application of the file needs vLLM and vLLM is not installed."""
    if any(map(is_vllm, read_applications(name).values())) and find_spec("vllm") is None:
        raise ConfigError(f"serving.applications: {name} needs vLLM, which is not installed: {INSTALL_VLLM}")
