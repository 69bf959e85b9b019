"""Checks whether a run can start with its settings on this machine. Nothing is written.

A flow checks this before it creates a run, the `coevo` command before it starts a flow, and the REST API before it
accepts a run. All faults are found, not only the first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from core.errors import CoevoError
from core.faults import Fault, listed
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import ConfigError
from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER
from core.settings.trainers import EasyR1Settings
from core.types import TINY_BASES
from orchestrator.check.needs import MODEL_REMEDY, base_model, needs_of, prompt_needs, prompt_settings, prompts_remedy
from orchestrator.installation.home import NotUp, home
from orchestrator.question_sets.benchmarks import BenchmarkError, evaluated_in, is_fetched, is_here, read_suite
from orchestrator.question_sets.held_out import load_for, trained_on
from orchestrator.question_sets.prompts import PromptsError, read_prompts
from orchestrator.serving.applications import refuse_missing, refuse_missing_engine
from services.inference.client import InferenceError
from services.inference.keys import keys_of
from services.oracles.program import ProgramError, refuse_unrunnable
from storage.checkpoints import model_files
from storage.errors import CheckpointError
from trainers.easyr1.fit import uneven, unfit


class UnreadyError(CoevoError):
    """A run that cannot start; the message names every setting at fault and what was expected."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(listed(faults))
        self.faults = faults


def refuse_unready(config: RunConfig, new: bool) -> None:
    """Raise `UnreadyError` with all of `unready`."""
    if faults := [*unready(config, new)]:
        raise UnreadyError(faults)


def unready(config: RunConfig, new: bool, *, fetch: bool = True) -> Iterator[Fault]:
    """Everything that keeps a run from starting on this machine.

    This checks files, packages and environment variables as this process sees them. The base model is checked only if
    the run is `new`, because an existing run has its own copy. Benchmarks that are not here are fetched, which shows
    whether they can be had; without `fetch` they are taken for granted.
    """
    yield from untrainable(config)
    yield from _serving_faults(config)
    yield from _key_faults(config)
    if config.audit.program is not None:
        yield from _raised("audit.program.file", partial(refuse_unrunnable, config.audit.program), ProgramError)
    if new:
        yield from _model_faults(config)
    benchmarks = [*_benchmark_faults(config, fetch)]
    yield from benchmarks
    yield from _prompt_faults(config, fetch, held_out=not benchmarks)


def untrainable(config: RunConfig) -> Iterator[Fault]:
    """What the run's trainer cannot do. Only the settings are checked. The embedded trainer can do everything."""
    trainer = config.trainer
    if not isinstance(trainer, EasyR1Settings):
        return
    # From the second round on, the KL is to the base model, from which the round does not start.
    own_reference = isinstance(config, SelfTraining) and config.iterations > 1
    continued = isinstance(config, SelfTraining) and own_reference and config.rounds_are_one_training
    for planned in config.trainings:
        yield from unfit(
            planned.table, planned.training, planned.objective, own_reference=own_reference, continued=continued
        )
    divisions = [fault for planned in config.trainings for fault in uneven(planned.training, planned.rollouts, trainer)]
    yield from {fault.setting: fault for fault in reversed(divisions)}.values()  # the first training's of each setting


def refuse_as_the_api_can(config: RunConfig, new: bool) -> None:
    """Make the checks that the REST API's process can make for a run that the flow runner will start.

    If one `coevo up` started both processes, they share files, packages and environment, so everything is checked.
    Otherwise the runner is another container, or was started by hand. Then only the settings are checked here, and the
    flow checks the rest. Raises `UnreadyError`.
    """
    if _is_beside_the_runner():
        refuse_unready(config, new)
    elif faults := [*untrainable(config)]:
        raise UnreadyError(faults)


def doubtful(config: RunConfig, gpus: int) -> Iterator[Fault]:
    """What does not keep a run from starting, but makes it wait, fail later, or show less than one expects.

    `gpus` is how many its plan has. Raises what `needs_of` raises.
    """
    if isinstance(config, SelfTraining) and config.prompts.limit is not None:
        limit, step = config.prompts.limit, config.solver.training.prompts_per_step
        if limit < step:
            got = f"{limit} questions are fewer than the {step} of a step, so a step has some more than once"
            yield Fault("prompts.limit", got, remedy="raise it, or lower solver.training.prompts_per_step")
    yield from _foreign_templates(config)
    voted = config.votes_before_training
    if isinstance(config, SelfTraining) and not voted and config.audit.oracle not in (None, "exact"):  # the default
        got = f"{config.audit.oracle!r} has nothing to grade, because nothing is voted on before the training"
        remedy = "set it to 'none'; votes are made with prompts.labels = 'offline' or prompts.easiest below 1"
        yield Fault("audit.oracle", got, remedy=remedy)
    kinds = ("benchmark", "GPUs", "trainer", "judge")
    for need in needs_of(config, gpus, vllm=False):  # without vLLM it cannot start, which is a fault
        is_fault = need.setting == "audit.judge" or (need.kind == "benchmark" and not is_fetched(need.what))
        if need.here is False and need.kind in kinds and not is_fault:
            yield Fault(need.setting, _lacking(need.kind, need.what), remedy=need.remedy)


def _foreign_templates(config: RunConfig) -> Iterator[Fault]:
    """The templates that a tiny base cannot follow, since it has seen only the default ones."""
    templates = {"solver.template": config.solver.template != RZERO_SOLVER}
    if isinstance(config, CoEvolution):
        templates["challenger.template"] = config.challenger.template != RZERO_CHALLENGER
    for setting, is_changed in templates.items():
        if is_changed and config.base_model in TINY_BASES:
            got = f"the tiny model {config.base_model} was trained on the default template only"
            yield Fault(setting, got, remedy="leave it out, or set base_model to the folder of a language model")


def _lacking(kind: str, what: str) -> str:
    """A sentence about a need that is not here."""
    match kind:
        case "GPUs":
            return f"the run needs {what} GPUs and waits until Ray has them"
        case "judge":
            return what
        case _:
            return f"{kind} {what} is not on this machine"


def _is_beside_the_runner() -> bool:
    """Whether `coevo up` started this process, and so the flow runner too."""
    try:
        return os.getpid() in home().services().processes
    except NotUp:
        return False


def _serving_faults(config: RunConfig) -> Iterator[Fault]:
    file, served = config.serving.applications, [*config.solver.signals.served(config.solver.reward)]
    checks = partial(refuse_missing_engine, file), partial(refuse_missing, file, served)
    # An unknown file is the fault of both.
    yield from dict.fromkeys(fault for check in checks for fault in _raised("serving.applications", check, ConfigError))


def _key_faults(config: RunConfig) -> Iterator[Fault]:
    for setting, services in (
        ("solver.signals", config.solver.signals.services(config.solver.reward)),
        ("audit.judge", config.audit.services),
    ):
        yield from _raised(setting, partial(keys_of, services), InferenceError)


def _model_faults(config: RunConfig) -> Iterator[Fault]:
    folder = base_model(config)
    if not (folder / "config.json").is_file():
        got = f"{folder}, which has no config.json"
        yield Fault("base_model", got, "a folder with a Hugging Face model", MODEL_REMEDY)
        return
    yield from _raised("base_model", partial(model_files, folder), CheckpointError)


def _benchmark_faults(config: RunConfig, fetch: bool) -> Iterator[Fault]:
    settings, stopping = config.evaluation, config.early_stopping
    names = [("evaluation.benchmark", settings.benchmark), *(("evaluation.also", name) for name in settings.also)]
    names += [("early_stopping.benchmark", stopping.benchmark)] if stopping is not None else []
    if settings.suite is not None:
        unknown = [*_raised("evaluation.suite", partial(read_suite, settings.suite), BenchmarkError)]
        yield from unknown
        in_suite = [] if unknown else read_suite(settings.suite).benchmarks
        names += [("evaluation.suite", name) for name in in_suite if name not in dict(names).values()]
    for setting, name in names:
        yield from _raised(setting, partial(_check_benchmark, config, name, fetch), BenchmarkError, PromptsError)


def _check_benchmark(config: RunConfig, name: str, fetch: bool) -> None:
    if fetch or not is_fetched(name):
        load_for(config, name)


def _prompt_faults(config: RunConfig, fetch: bool, *, held_out: bool) -> Iterator[Fault]:
    """Faults of the prompt sets. With `held_out`, the benchmarks' questions, which are not trained on, can be read."""
    without_file = [need.what for need in prompt_needs(config) if not need.here]
    for setting, prompts in zip(prompt_settings(config), config.prompt_sets, strict=True):
        all_here = held_out and (fetch or all(map(is_here, evaluated_in(config))))
        if all_here or prompts.file != "benchmark":
            read = trained_on if all_here else read_prompts
            for fault in _raised(setting, partial(read, config, prompts), PromptsError, BenchmarkError):
                missing = prompts.file in without_file
                yield replace(fault, remedy=prompts_remedy(setting, prompts)) if missing else fault


def _raised(setting: str, check: Callable[[], Any], *errors: type[CoevoError]) -> Iterator[Fault]:
    """The fault of a check that raises one of `errors`; none if it passes."""
    try:
        check()
    except errors as error:
        yield Fault.of(setting, str(error).removeprefix(f"{setting}: "))
