"""What keeps a run with these settings from starting on this machine, and what it would wait for or do without.

Nothing is written. All faults are found, not only the first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from core.errors import CoevoError
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import ConfigError
from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER
from core.settings.trainers import EasyR1Settings, LocalSettings
from core.types import TINY_BASES
from core.validation.faults import Fault, listed
from orchestrator.check.forks import fork_point, unforkable
from orchestrator.check.layout import undivided
from orchestrator.check.needs import (
    MODEL_REMEDY,
    base_model,
    needs_of,
    prompt_needs,
    prompt_settings,
    prompts_remedy,
    tracker_needs,
)
from orchestrator.check.size.shapes import SizingError, shape_of
from orchestrator.installation.home import NotUp, home
from orchestrator.question_sets.benchmarks import BenchmarkError, evaluated_in, is_fetched, is_here, read_suite
from orchestrator.question_sets.held_out import load_for, trained_on
from orchestrator.question_sets.prompts import PromptsError, read_prompts
from orchestrator.serving.applications import is_vllm, read_applications, refuse_missing, refuse_missing_engine
from services.inference.client import InferenceError
from services.inference.keys import keys_of
from services.oracles.program import ProgramError, refuse_unrunnable
from storage.errors import CheckpointError
from storage.files.checkpoints import model_files
from storage.session import Store
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
    # An unknown file is the fault of both.
    file, served = config.serving.applications, [*config.solver.signals.served(config.solver.reward)]
    checks = partial(refuse_missing_engine, file), partial(refuse_missing, file, served)
    yield from dict.fromkeys(fault for check in checks for fault in _raised("serving.applications", check, ConfigError))
    with suppress(ConfigError):
        yield from _not_ahead(config)
        yield from _unmasked(config)
    with suppress(ConfigError, SizingError):  # a file or model that cannot be read is a fault by itself, if it is one
        shape = shape_of(config.base_model)
        for setting, ranks in undivided(config, shape):
            heads = f"a divisor of the model's {shape.num_attention_heads} attention heads"
            yield Fault(setting, f"tensor parallelism of {ranks}", heads)
    for setting, services in (
        ("solver.signals", config.solver.signals.services(config.solver.reward)),
        ("audit.judge", config.audit.services),
        ("dataset.gates", [service for gate in config.gates for service in gate.services]),
    ):
        yield from _raised(setting, partial(keys_of, services), InferenceError)
    if config.audit.program is not None:
        yield from _raised("audit.program.file", partial(refuse_unrunnable, config.audit.program), ProgramError)
    for need in tracker_needs(config):
        if not need.here:
            yield Fault(need.setting, f"{need.what} is not here", remedy=need.remedy)
    folder = base_model(config)
    if new and not (folder / "config.json").is_file():
        got = f"{folder}, which has no config.json"
        yield Fault("base_model", got, "a folder with a Hugging Face model", MODEL_REMEDY)
    elif new:
        yield from _raised("base_model", partial(model_files, folder), CheckpointError)
        yield from _without_adapters(config)
    benchmarks = [*_benchmark_faults(config, fetch)]
    yield from benchmarks
    yield from _prompt_faults(config, fetch, held_out=not benchmarks)


def _without_adapters(config: RunConfig) -> Iterator[Fault]:
    """The fault of a base model that cannot have the adapters of `trainer.lora`."""
    if isinstance(config.trainer, LocalSettings) and config.trainer.lora is not None:
        from trainers.base import TrainError  # here, because what follows takes seconds to import
        from trainers.local.lora import refuse_targets

        check = partial(refuse_targets, base_model(config), config.trainer.lora)
        yield from _raised("trainer.lora.targets", check, TrainError)


def untrainable(config: RunConfig) -> Iterator[Fault]:
    """What the run's trainer cannot do. Only the settings are checked. The embedded trainer can do everything."""
    trainer = config.trainer
    if not isinstance(trainer, EasyR1Settings):
        return
    # From the second round on, the KL is to the base model, from which the round does not start.
    own_reference = isinstance(config, SelfTraining) and config.iterations > 1
    continued = own_reference and config.rounds_are_one_training
    for planned in config.trainings:
        if planned.table == "labelled":
            continue  # its settings are the Solver's, whose faults are named already
        retention = 1.0
        if isinstance(config, CoEvolution) and planned.table == "challenger":
            retention = config.challenger.vocabulary_retention
        yield from unfit(
            planned.table,
            planned.training,
            planned.objective,
            own_reference=own_reference,
            continued=continued,
            vocabulary_retention=retention,
        )
    divisions = [fault for planned in config.trainings for fault in uneven(planned.training, planned.rollouts, trainer)]
    yield from {fault.setting: fault for fault in reversed(divisions)}.values()  # the first training's of each setting


def _not_ahead(config: RunConfig) -> Iterator[Fault]:
    """What trainer.ahead rules out: entropies and log-probabilities that the trainer must compute itself, for which it
    no longer has the policy that sampled. Raises `ConfigError`."""
    settings, applications = config.trainer, read_applications(config.serving.applications)
    if not isinstance(settings, LocalSettings) or not settings.ahead:
        return
    for role in config.roles:
        application = applications[config.application(role)]
        if not is_vllm(application):
            continue
        training = config.solver.training if role == "solver" else cast(CoEvolution, config).challenger.training
        if (temperature := training.sampling.temperature) != 1:
            expected = "1 with trainer.ahead = 1 and vLLM, whose log-probabilities are those at 1"
            yield Fault(f"{role}.training.sampling.temperature", f"{temperature:g}", expected)
        if application["args"]["llm_configs"][0].get("engine_kwargs", {}).get("max_logprobs") == 0:
            yield Fault("trainer.ahead", f"1, but the application {role} gives no entropies: max_logprobs is 0", "0")
    if is_vllm(applications["solver"]) and "mean_entropy" in config.solver.reward.needs:
        got = f"1, but {config.solver.reward.type} rewards entropies, which vLLM only estimates"
        yield Fault("trainer.ahead", got, "0")


def _unmasked(config: RunConfig) -> Iterator[Fault]:
    """The fault of a Challenger whose vocabulary is masked, and whose application samples with vLLM. Raises
    `ConfigError`."""
    if not isinstance(config, CoEvolution) or config.challenger.vocabulary_retention == 1:
        return
    if is_vllm(read_applications(config.serving.applications)[config.application("challenger")]):
        got = f"{config.challenger.vocabulary_retention:g}"
        yield Fault("challenger.vocabulary_retention", got, "1 with vLLM, which gets no mask over the vocabulary")


def refuse_as_the_api_can(config: RunConfig, new: bool) -> None:
    """Make the checks that the REST API's process can make for a run that the flow runner will start.

    If one `coevo up` started both processes, they share files, packages and environment, so everything is checked.
    Otherwise the runner is another container, or was started by hand. Then only the settings are checked here, and the
    flow checks the rest. Raises `UnreadyError`.
    """
    try:
        beside_the_runner = os.getpid() in home().services().processes
    except NotUp:
        beside_the_runner = False
    if faults := [*(unready(config, new) if beside_the_runner else untrainable(config))]:
        raise UnreadyError(faults)


def refuse_unforkable(store: Store, at: str, name: str, config: RunConfig) -> None:
    """Raise `UnreadyError` if no run of this name can begin at a place such as `demo:3` with these settings, as far as
    the store tells."""
    if (point := fork_point(at)) is not None:
        with store.read() as session:
            if faults := [*unforkable(session, name, point, config, None)]:
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
    templates = {"solver.template": config.solver.template != RZERO_SOLVER}
    if isinstance(config, CoEvolution):
        templates["challenger.template"] = config.challenger.template != RZERO_CHALLENGER
    for setting, is_changed in templates.items():
        if is_changed and config.base_model in TINY_BASES:
            got = f"the tiny model {config.base_model} was trained on the default template only"
            yield Fault(setting, got, remedy="leave it out, or set base_model to the folder of a language model")
    voted = config.votes_before_training
    if isinstance(config, SelfTraining) and not voted and config.audit.oracle not in (None, "exact"):  # the default
        got = f"{config.audit.oracle!r} has nothing to grade, because nothing is voted on before the training"
        remedy = "set it to 'none'; votes are made with prompts.labels = 'offline' or prompts.easiest below 1"
        yield Fault("audit.oracle", got, remedy=remedy)
    lacking = [need for need in needs_of(config, gpus, vllm=False) if need.here is False]  # lacking vLLM is a fault
    if hub := [need.what for need in lacking if need.kind == "benchmark" and is_fetched(need.what)]:
        remedy = "they are fetched from the Hugging Face hub when the run starts; or put their files there"
        yield Fault("evaluation", f"not on this machine: {', '.join(hub)}", remedy=remedy)
    for need in lacking:
        if need.kind == "GPUs":
            got = f"the run needs {need.what} GPUs and waits until Ray has them"
            yield Fault(need.setting, got, remedy=need.remedy)
        elif need.kind == "trainer":
            yield Fault(need.setting, f"trainer {need.what} is not on this machine", remedy=need.remedy)
        elif need.setting == "audit.oracle":  # a judge without its key is a fault
            yield Fault(need.setting, need.what, remedy=need.remedy)


def _benchmark_faults(config: RunConfig, fetch: bool) -> Iterator[Fault]:
    settings, stopping = config.evaluation, config.early_stopping
    names = [("evaluation.benchmark", settings.benchmark), *(("evaluation.also", name) for name in settings.also)]
    names += [("early_stopping.benchmark", stopping.benchmark)] if stopping is not None else []
    if settings.suite is not None:
        unknown = [*_raised("evaluation.suite", partial(read_suite, settings.suite), BenchmarkError)]
        yield from unknown
        in_suite = [] if unknown else read_suite(settings.suite).benchmarks
        names += [("evaluation.suite", name) for name in in_suite if name not in dict(names).values()]

    def check(name: str) -> None:
        if fetch or not is_fetched(name):
            load_for(config, name)

    for setting, name in names:
        yield from _raised(setting, partial(check, name), BenchmarkError, PromptsError)


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
        yield Fault(setting, str(error).removeprefix(f"{setting}: "))
