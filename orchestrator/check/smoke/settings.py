"""The settings of a smoke run: the preset's model, trainer, applications and lengths of answers, but little work."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, get_args

from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.evaluation import OWN_PROMPTS
from core.settings.parsing import load_config
from core.statistics.guard import Signal
from core.types import BenchmarkItem
from orchestrator.check.refusals import UnreadyError, untrainable
from orchestrator.question_sets.held_out import load_for

_BENCHMARK, _VALIDATION, _SUITE = "benchmark.jsonl", "validation.jsonl", "suite.toml"
_CANDIDATES = 16  # enough that some are well formed and get a majority
_VOTES, _SAMPLES, _JUDGED, _QUESTIONS = 4, 2, 2, 4
_PROMPTS = 2  # a step, or the next larger number that the trainer can divide among its GPUs


def questions_of(config: RunConfig) -> list[BenchmarkItem]:
    """The questions on which a smoke run evaluates: some of the preset's benchmark, from its first to its last part.

    Benchmarks often begin with the easiest questions, and the tokens of answers that are certain tell the canary
    nothing. Raises `BenchmarkError`.
    """
    items = load_for(config, config.evaluation.benchmark).items
    return [items[index] for index in sorted({part * len(items) // _QUESTIONS for part in range(_QUESTIONS)})]


def write_questions(folder: Path, items: Sequence[BenchmarkItem]) -> None:
    """Write the question files of a smoke run, which replace the preset's. Their prompt is the default one."""
    rows = [json.dumps({"id": item.id, "problem": item.problem, "answer": item.answer}) for item in items]
    for file in (_BENCHMARK, _VALIDATION):
        (folder / file).write_text("\n".join(rows), encoding="utf-8")
    # The run asks a benchmark once, in its own way, so this suite adds no question.
    suite = 'title = "smoke"\nsource = "coevo check --run"\nsampling = {}\n'
    suite += f"benchmarks = {{{json.dumps(str(folder / _BENCHMARK))} = 1}}"
    (folder / _SUITE).write_text(suite, encoding="utf-8")


def smaller(preset: Path, overrides: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The overrides that make a smoke run of a preset, the given ones too. `folder` has its question files.

    Raises `ConfigError`, `UnreadyError`.
    """
    config = load_config(preset, overrides)
    for prompts in count(_PROMPTS):
        small = {**overrides, **_little_work(config, folder)}
        for planned in config.trainings:  # one step, of `prompts` prompts or as many as the preset has, in one batch
            if planned.table == "labelled":
                small["labelled.steps"] = 1  # the others are the Solver's
                continue
            size = min(prompts, planned.training.prompts_per_step)
            step: dict[str, Any] = {"steps": 1, "checkpoint_every": 1, "prompts_per_step": size}
            step |= {"warmup_steps": 0} if planned.training.warmup_steps else {}
            step |= {"prompts_per_update": size} if planned.training.prompts_per_update is not None else {}
            small |= {f"{planned.table}.training.{name}": value for name, value in step.items()}
        faults = [*untrainable(load_config(preset, small))]
        if not faults:
            break
        if all(prompts >= planned.training.prompts_per_step for planned in config.trainings):
            raise UnreadyError(faults)
    return small


def _little_work(config: RunConfig, folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "iterations": 1,
        "dataset.votes": min(_VOTES, config.dataset.votes),
        "evaluation.benchmark": str(folder / _BENCHMARK),
        "evaluation.also": [],
        "evaluation.samples": min(_SAMPLES, config.evaluation.samples),
        # Nobody waits for a question of the guard, and no alarm shall end the run.
        **{f"guard.actions.{signal}": "warn" for signal in get_args(Signal)},
        "trackers.to": [],  # its figures say nothing
    }
    if config.evaluation.suite is not None:
        settings["evaluation.suite"] = str(folder / _SUITE)
    if config.early_stopping is not None and config.early_stopping.benchmark != OWN_PROMPTS:
        settings["early_stopping.benchmark"] = str(folder / _VALIDATION)  # must not be the other one
    if config.audit.judge is not None:
        settings["audit.sample"] = _JUDGED
    if isinstance(config, CoEvolution):
        settings |= {"dataset.candidates": min(_CANDIDATES, config.dataset.candidates), "dataset.filtered": False}
        settings["dataset.gates"] = []  # they might refuse all of so few
        if config.labelled is not None:
            settings["labelled.limit"] = _CANDIDATES
    if isinstance(config, SelfTraining) and not config.test_time:
        settings["prompts.limit"] = _CANDIDATES
    return settings
