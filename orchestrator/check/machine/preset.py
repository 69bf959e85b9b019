"""Whether a preset can run here: its settings, its GPUs, the services that it asks, and EasyR1's environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp

from core.faults import Fault
from core.settings.config import RunConfig
from core.settings.serving import Service
from core.settings.trainers import EasyR1Settings
from orchestrator.check.machine.devices import devices, run
from orchestrator.check.machine.result import CheckFailed, Finding, Status, Subject, ok, skipped
from orchestrator.check.refusals import doubtful, unready
from orchestrator.check.size import Assumptions, Plan, SizingError, calculate
from orchestrator.installation.home import ROOT
from orchestrator.question_sets.benchmarks import BenchmarkError
from services.inference.external import ask_each, post
from services.inference.external_chats import ask_chat
from trainers.easyr1.fit import checkout_problem

_SERVICE_S = 20.0  # for the one request to each service
_CHECKED_HERE = ("evaluation", "trainer.source")  # what `coevo check` only warns about
# What a training imports in EasyR1's environment: its own packages, and what the reward imports of ours.
_IN_EASYR1 = "import peft, flash_attn, ray, torch, transformers, vllm; import trainers.easyr1.reward_shim"


def check_settings(subject: Subject) -> Finding | list[Finding]:
    """Everything that `coevo run` checks before it starts: settings, model, benchmarks, prompts, keys, applications.

    What `coevo check` warns about is a warning too, except what is checked here: benchmarks, GPUs, EasyR1.
    """
    if subject.config is None:
        return skipped("no preset is given")
    findings = [_finding("fault", fault) for fault in unready(subject.config, new=True)]
    try:
        doubts = [fault for fault in doubtful(subject.config, gpus=0) if fault.setting not in _CHECKED_HERE]
    except BenchmarkError:  # a benchmark that is not known is one of the faults
        doubts = []
    findings += [_finding("warning", fault) for fault in doubts]
    return findings or ok(f"{subject.preset} would be accepted by `coevo run`")


def _finding(status: Status, fault: Fault) -> Finding:
    return Finding(status, str(replace(fault, remedy=None)), fault.remedy)


def check_layout(subject: Subject) -> Finding:
    """Whether the preset's GPUs are there, divide its model's heads, and have the memory that `coevo plan` computes."""
    if subject.config is None:
        return skipped("no preset is given")
    gpus = devices()["gpus"]
    assumed = Assumptions()
    if gpus:
        assumed = replace(assumed, gpu_memory=min(gpu["gib"] for gpu in gpus), gpus_per_node=len(gpus))
    try:
        plan = calculate(str(subject.preset), subject.config, assumed)
    except SizingError as error:
        return Finding("warning", f"cannot be computed: {error}")
    if problems := list(_undivided(plan)):
        raise CheckFailed("; ".join(problems), "choose tensor parallelism that divides both numbers")
    here = -(-plan.gpus // plan.layout.trainer.nodes)
    elsewhere = subject.services is not None and not subject.services.processes  # then so are the GPUs
    if here > len(gpus) and not elsewhere:
        raise CheckFailed(
            f"it needs {here} GPUs on this machine, which has {len(gpus)}", f"coevo plan {subject.preset} --gpus N"
        )
    if plan.problems and gpus:
        remedy = f"coevo plan {subject.preset} --gpu-memory {assumed.gpu_memory:.0f} says what to change"
        return Finding("warning", f"by arithmetic it does not fit: {plan.problems[0]}", remedy)
    return ok(f"{here} GPUs are enough" if here else "it needs no GPU")


def _undivided(plan: Plan) -> Iterator[str]:
    """The tensor parallelisms that do not divide the heads of the model, whose ranks each take a part of them."""
    heads = plan.shape.num_attention_heads
    ranks = [
        (f"application {app.name}: tensor_parallel_size", app.tensor_parallel)
        for app in plan.layout.apps
        if app.swapped
    ]
    for name, count in [*ranks, ("trainer.tensor_parallel", plan.layout.trainer.tensor_parallel)]:
        if heads % count:
            yield f"{name}: expected a divisor of the model's {heads} attention heads, got {count}"


def check_external(subject: Subject) -> Finding:
    """Whether the judge and the embedder that the preset names answer a tiny request."""
    if subject.config is None:
        return skipped("no preset is given")
    asked = list(_services(subject.config))
    if not asked:
        return skipped("the preset asks no external service")
    for service, is_embedder in asked:
        patient = service.model_copy(update={"timeout": _SERVICE_S, "attempts": 1})
        asyncio.run(ask_each(patient, [patient], _embed if is_embedder else _chat, at_once=1))
    return ok(f"{', '.join(service.url for service, _ in asked)} answered")


def _services(config: RunConfig) -> Iterator[tuple[Service, bool]]:
    """Each service that a run asks, and whether it is the embedder."""
    signals = config.solver.signals
    yield from ((service, False) for service in config.audit.services)
    yield from ((service, service is signals.embedder) for service in signals.services(config.solver.reward))


async def _chat(http: aiohttp.ClientSession, service: Service) -> object:
    return await ask_chat(http, service, [{"role": "user", "content": "1 + 1 = ?"}], max_tokens=1)


async def _embed(http: aiohttp.ClientSession, service: Service) -> object:
    return await post(http, service, "embeddings", {"model": service.model, "input": ["1 + 1"]})


def check_easyr1(subject: Subject) -> Finding:
    """Whether EasyR1's sources are those that coevo corrects, and its Python can import what a training imports."""
    if subject.config is None or not isinstance(settings := subject.config.trainer, EasyR1Settings):
        return skipped("no preset with trainer.type = 'easyr1' is given")
    if problem := checkout_problem(Path(settings.source)):
        raise CheckFailed(problem, "follow docs/easyr1.md, or set trainer.source")
    path = os.pathsep.join([str(Path(settings.source).resolve()), str(ROOT)])
    try:
        run([settings.python, "-c", _IN_EASYR1], {**os.environ, "PYTHONPATH": path})
    except CheckFailed as error:
        raise CheckFailed(
            f"trainer.python: {settings.python}: {error}", "install what docs/easyr1.md lists there"
        ) from error
    return ok(f"{settings.source} and the packages of {settings.python}")
