"""Whether what a preset needs works here: the services that it asks, and EasyR1's environment."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

import aiohttp

from core.asking.service import Service
from core.settings.trainers import EasyR1Settings
from orchestrator.check.machine.devices import run
from orchestrator.check.machine.result import CheckFailed, Finding, Subject, ok, skipped
from orchestrator.check.needs import services_of
from orchestrator.installation.home import ROOT
from services.inference.client import InferenceError
from services.inference.external import ask_each, post
from services.inference.external_chats import ask_chat
from trainers.easyr1.fit import checkout_problem

# What a training imports in EasyR1's environment: its own packages, and what the reward imports of ours.
_IN_EASYR1 = "import peft, flash_attn, ray, torch, transformers, vllm; import trainers.easyr1.reward_shim"


class _AskedOnce(Service):
    timeout: ClassVar[float] = 20.0
    attempts: ClassVar[int] = 1


def check_external(subject: Subject) -> Finding:
    """Whether the judge and the embedder that the preset names answer a tiny request."""
    config = subject.config
    if config is None or not (asked := services_of(config)):
        return skipped("the preset asks no external service")

    async def chat(http: aiohttp.ClientSession, service: Service) -> object:
        return await ask_chat(http, service, [{"role": "user", "content": "1 + 1 = ?"}], max_tokens=1)

    async def embed(http: aiohttp.ClientSession, service: Service) -> object:
        return await post(http, service, "embeddings", {"model": service.model, "input": ["1 + 1"]})

    for service in asked:
        ask = embed if service is config.solver.signals.embedder else chat
        once = _AskedOnce(url=service.url, model=service.model, key_variable=service.key_variable)
        try:
            asyncio.run(ask_each(once, [once], ask, at_once=1))
        except InferenceError as error:  # a run can start without it
            return Finding("warning", str(error), "start it before the run asks it")
    return ok(f"{', '.join(service.url for service in asked)} answered")


def check_easyr1(subject: Subject) -> Finding:
    """Whether EasyR1's sources are those that coevo corrects, and its Python can import what a training imports."""
    if subject.config is None or not isinstance(settings := subject.config.trainer, EasyR1Settings):
        return skipped("it does not train")
    if not (Path(settings.source) / "verl").is_dir():
        return skipped(f"{settings.source} is not on this machine")  # a warning: another machine may train
    if problem := checkout_problem(Path(settings.source)):
        raise CheckFailed(problem, "follow docs/gpu.md, or set trainer.source")
    path = os.pathsep.join([str(Path(settings.source).resolve()), str(ROOT)])
    try:
        run([settings.python, "-c", _IN_EASYR1], {**os.environ, "PYTHONPATH": path})
    except CheckFailed as error:
        remedy = "install what docs/gpu.md lists there"
        raise CheckFailed(f"trainer.python: {settings.python}: {error}", remedy) from error
    return ok(f"{settings.source} and the packages of {settings.python}")
