"""Checks whether a run can start with its settings on this machine. Nothing is written.

A flow checks this before it creates a run, the `coevo` command before it starts a flow, and the REST API before it
accepts a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import CoevoError
from core.settings.config import RunConfig, SelfTraining
from core.settings.trainers import EasyR1Settings
from orchestrator.installation.home import NotUp, home
from orchestrator.question_sets.benchmarks import BenchmarkError, read_suite
from orchestrator.question_sets.held_out import load_for, trained_on
from orchestrator.serving.applications import refuse_missing, refuse_missing_engine
from services.inference.keys import keys_of
from storage.checkpoints import model_files
from trainers.base import LOCAL_SIGNALS, refuse_unmet
from trainers.easyr1.fit import refuse_layout, refuse_unfit
from trainers.micro.bases import BASES


class ModelError(CoevoError):
    """A base model that cannot be used; names the setting and the folder."""


def base_model(config: RunConfig) -> Path:
    """The folder of a run's base model."""
    tiny = BASES.get(config.base_model)
    return tiny.model if tiny else Path(config.base_model)


def refuse_unready(config: RunConfig, new: bool) -> None:
    """Raise an error if a run cannot start on this machine; the message names the setting and what was expected.

    This checks files, packages and environment variables as this process sees them. The base model is checked only if
    the run is `new`, because an existing run has its own copy.

    Raises `ConfigError`, `TrainError`, `ModelError`, `CheckpointError`, `BenchmarkError`, `PromptsError`,
    `InferenceError`.
    """
    refuse_untrainable(config)
    refuse_missing_engine(config.serving.applications)
    refuse_missing(config.serving.applications, [*config.solver.signals.served(config.solver.reward)])
    keys_of(config.solver.signals.services(config.solver.reward))
    keys_of(config.audit.services)
    if new:
        _refuse_no_model(config)
    _refuse_no_benchmark(config)
    for prompts in config.prompt_sets:
        trained_on(config, prompts)


def refuse_untrainable(config: RunConfig) -> None:
    """Raise `TrainError` if the run's trainer cannot train as the settings say. Only the settings are checked."""
    trainer = config.trainer
    if not isinstance(trainer, EasyR1Settings):
        refuse_unmet(config.solver.reward, LOCAL_SIGNALS, "the embedded trainer")
        return
    # From the second round on, the KL is to the base model, from which the round does not start.
    own_reference = isinstance(config, SelfTraining) and config.iterations > 1
    continued = isinstance(config, SelfTraining) and own_reference and config.rounds_are_one_training
    for planned in config.trainings:
        refuse_unfit(
            planned.table, planned.training, planned.objective, own_reference=own_reference, continued=continued
        )
    for planned in config.trainings:
        refuse_layout(planned.training, planned.rollouts, trainer)


def refuse_as_the_api_can(config: RunConfig, new: bool) -> None:
    """Make the checks that the REST API's process can make for a run that the flow runner will start.

    If one `coevo up` started both processes, they share files, packages and environment, so everything is checked.
    Otherwise the runner is another container, or was started by hand. Then only the settings are checked here, and the
    flow checks the rest. Raises what `refuse_unready` raises.
    """
    if _is_beside_the_runner():
        refuse_unready(config, new)
    else:
        refuse_untrainable(config)


def _is_beside_the_runner() -> bool:
    """Whether `coevo up` started this process, and so the flow runner too."""
    try:
        return os.getpid() in home().services().processes
    except NotUp:
        return False


def _refuse_no_model(config: RunConfig) -> None:
    folder = base_model(config)
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"base_model: expected a folder with a Hugging Face model, got {folder}, which has no config.json"
        )
    model_files(folder)


def _refuse_no_benchmark(config: RunConfig) -> None:
    settings, stopping = config.evaluation, config.early_stopping
    names = [("evaluation.benchmark", settings.benchmark), *(("evaluation.also", name) for name in settings.also)]
    names += [("early_stopping.benchmark", stopping.benchmark)] if stopping is not None else []
    if settings.suite is not None:
        with _naming("evaluation.suite"):
            names += [("evaluation.suite", name) for name in read_suite(settings.suite).benchmarks]
    for setting, name in names:
        with _naming(setting):
            load_for(config, name)


@contextmanager
def _naming(setting: str) -> Iterator[None]:
    """Begin the message of a `BenchmarkError` with the setting's name."""
    try:
        yield
    except BenchmarkError as error:
        raise BenchmarkError(f"{setting}: {error}") from error
