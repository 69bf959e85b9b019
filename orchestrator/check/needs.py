"""The models, data sets, GPUs, packages and services of a run, and which are missing here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from core.asking.service import Service
from core.settings.config import RunConfig
from core.settings.evaluation import OWN_PROMPTS
from core.settings.prompts import Prompts
from core.settings.trackers import TRACKERS
from core.settings.trainers import EasyR1Settings
from core.types import TINY_BASES
from orchestrator.question_sets.benchmarks import definition_of, evaluated_in, expected_file, is_here
from orchestrator.serving.applications import INSTALL_VLLM
from trainers.micro.bases import BASES

_ADD_A_JUDGE = (
    "add --set audit.oracle=judge --set audit.judge.url=URL --set audit.judge.model=MODEL, or fill in [audit.judge] in "
    "the preset (docs/audits.md)"
)
MODEL_REMEDY = "put a Hugging Face model in safetensors there, or add --set base_model=FOLDER"


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a run needs. `here` is None where this process cannot know, as with a service."""

    kind: Literal["model", "prompts", "benchmark", "GPUs", "package", "trainer", "judge", "service"]
    setting: str  # that names it
    what: str
    here: bool | None
    remedy: str | None = None  # what to put where; None if it is here or nothing is to be done


def base_model(config: RunConfig) -> Path:
    """The folder of a run's base model."""
    tiny = BASES.get(config.base_model)
    return tiny.model if tiny else Path(config.base_model)


def needs_of(config: RunConfig, gpus: int, vllm: bool) -> list[Need]:
    """What a run needs, in the order in which one provides it: so many `gpus`, and `vllm` as an engine or not.

    Raises `BenchmarkError`: the run's suite or benchmarks are not known.
    """
    needs = list[Need]()
    if config.base_model not in TINY_BASES:
        here = (base_model(config) / "config.json").is_file()
        needs.append(Need("model", "base_model", config.base_model, here, None if here else MODEL_REMEDY))
    needs += prompt_needs(config)
    for name in evaluated_in(config):  # whose questions are fetched or read from a file
        if name != OWN_PROMPTS and not name.startswith(tuple(TINY_BASES)):
            hub, here, file = definition_of(name).hub, is_here(name), f"a file {expected_file(name)}"
            remedy = (
                f"it is fetched from {hub.dataset} on the Hugging Face hub; or put {file}" if hub else f"put {file}"
            )
            needs.append(Need("benchmark", "evaluation", name, here, None if here else remedy))
    if gpus:
        known, count = "COEVO_RAY_ADDRESS" not in os.environ, gpus_here()  # Ray may run elsewhere, with other GPUs
        lacking = f"this machine has {count}" if known and count < gpus else None
        needs.append(Need("GPUs", "trainer", f"{gpus}", count >= gpus if known else None, lacking))
    if vllm:
        here = find_spec("vllm") is not None
        needs.append(Need("package", "serving.applications", "vLLM", here, None if here else INSTALL_VLLM))
    if isinstance(config.trainer, EasyR1Settings):
        source = Path(config.trainer.source)
        here = (source / "verl").is_dir()
        remedy = "clone EasyR1 there (docs/gpu.md), or add --set trainer.source=FOLDER"
        needs.append(Need("trainer", "trainer.source", f"EasyR1 in {source}", here, None if here else remedy))
    if config.audit.judge is not None:
        needs.append(Need("judge", "audit.judge", config.audit.judge.model, _has_key(config.audit.judge)))
    elif lacks_a_judge(config):
        nobody = "none is set, so the chart of label accuracy stays empty"
        needs.append(Need("judge", "audit.oracle", nobody, False, _ADD_A_JUDGE))
    for service in config.solver.signals.services(config.solver.reward):
        needs.append(Need("service", "solver.signals", service.model, _has_key(service)))
    for gate in config.gates:
        kind: Literal["judge", "service"] = "judge" if gate.needs == "judge" else "service"
        needs += [Need(kind, "dataset.gates", service.model, _has_key(service)) for service in gate.services]
    return [*needs, *tracker_needs(config)]


def tracker_needs(config: RunConfig) -> Iterator[Need]:
    """The packages of the run's trackers, and the key of W&B's server."""
    for name in TRACKERS:
        if name in config.trackers.to:
            here = find_spec(name) is not None
            remedy = None if here else f"pip install -e '.[{name}]'"
            yield Need("package", "trackers.to", name, here, remedy)
    if "wandb" in config.trackers.to and config.trackers.wandb_url is not None:
        here = bool(os.environ.get("WANDB_API_KEY"))
        yield Need(
            "service", "trackers.wandb_url", "WANDB_API_KEY", here, None if here else "set it where the run is started"
        )


def services_of(config: RunConfig) -> list[Service]:
    """The services that a run asks and that are not part of it."""
    of_gates = [service for gate in config.gates for service in gate.services]
    return [*config.audit.services, *config.solver.signals.services(config.solver.reward), *of_gates]


def lacks_a_judge(config: RunConfig) -> bool:
    """Whether nobody grades the pseudo-labels of a Challenger's questions. Given prompts may have true answers."""
    return config.kind == "co_evolve" and config.audit.oracle is None


def gpus_here() -> int:
    """The NVIDIA GPUs of this machine, without a library that takes seconds to import."""
    return len([device for device in Path("/dev").glob("nvidia*") if device.name[len("nvidia") :].isdigit()])


def gpu_memory_here() -> float | None:
    """The memory of this machine's smallest GPU, in GiB, by nvidia-smi; None without one."""
    return min(_nvidia_smi("memory.total"), default=None)


def gpu_memory_used() -> float | None:
    """The memory in use on this machine's fullest GPU, in GiB, by nvidia-smi; None without one."""
    return max(_nvidia_smi("memory.used"), default=None)


def _nvidia_smi(what: str) -> list[float]:
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    command = [program, f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(line) / 1024 for line in answer.stdout.split() if line.isdigit()]


def prompt_needs(config: RunConfig) -> Iterator[Need]:
    """The files of the run's prompt sets."""
    for setting, prompts in zip(prompt_settings(config), config.prompt_sets, strict=True):
        if prompts.file not in TINY_BASES and prompts.file != "benchmark":
            here = Path(prompts.file).exists()
            yield Need("prompts", setting, prompts.file, here, None if here else prompts_remedy(setting, prompts))


def prompts_remedy(setting: str, prompts: Prompts) -> str:
    """What to put where if the file of a prompt set is missing. `setting` names the file."""
    columns = " and ".join(map(repr, filter(None, (prompts.question, prompts.answer))))
    return f"put a JSONL or Parquet file with {columns} as columns there, or add --set {setting}=FILE"


def prompt_settings(config: RunConfig) -> list[str]:
    """The settings that name the files of `config.prompt_sets`, in the same order."""
    table = "prompts" if config.kind == "self_train" else "labelled"
    return [f"{table}.file" for _ in config.prompt_sets]


def _has_key(service: Service) -> bool | None:
    """False if the service's key is not in the environment; None, for not known, if it is or if there is none."""
    return False if service.key_variable is not None and not os.environ.get(service.key_variable) else None
