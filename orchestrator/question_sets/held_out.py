"""What a run holds out: the questions of its benchmarks, and a share of its own prompts for early stopping."""

from __future__ import annotations

import random

from core.questions.filtering import normalised
from core.seeds import seed_for
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.evaluation import OWN_PROMPTS
from core.settings.prompts import Prompts
from core.types import BenchmarkItem
from orchestrator.question_sets.benchmarks import LoadedBenchmark, definition_of, evaluated_in, load, with_sha256
from orchestrator.question_sets.prompts import GivenPrompt, PromptsError, read_prompts


def load_for(config: RunConfig, name: str) -> LoadedBenchmark:
    """A benchmark of a run's evaluations. A benchmark without a prompt of its own is asked with the Solver's template.

    "prompts" is the share of the run's own prompts that early stopping holds out.
    Raises `BenchmarkError`, `PromptsError`.
    """
    stopping = config.early_stopping
    if name == OWN_PROMPTS and stopping is not None and isinstance(config, SelfTraining):
        # Different prompts, drawn at random with the run's seed, in the order of the set.
        different: dict[str, BenchmarkItem] = {}
        for index, prompt in enumerate(read_prompts(config, config.prompts)):
            item = BenchmarkItem(f"{OWN_PROMPTS}/{index:06d}", prompt.text, prompt.answer or "")
            different.setdefault(normalised(prompt.text), item)
        items, rng = [*different.values()], random.Random(seed_for(config.seed, "held-out prompts"))
        drawn = sorted(rng.sample(range(len(items)), stopping.held_out_of(len(items))))
        loaded = with_sha256(name, definition_of(name), [items[i] for i in drawn])
    else:
        loaded = load(name)
    return loaded.asked_with(config.solver.template)


def held_out_texts(config: RunConfig) -> set[str]:
    """The questions that no Solver of a run may train on: all benchmarks of its evaluations, and the worked examples in
    its templates.

    In test-time training the Solver trains on its benchmark, so those questions are not held out.
    """
    names = {*evaluated_in(config)} - ({config.evaluation.benchmark} if config.test_time else set())
    of_benchmarks = {item.problem for name in names for item in load_for(config, name).items}
    shown = {example.question for example in config.solver.template.examples}
    if isinstance(config, CoEvolution):
        shown |= {*config.challenger.template.example_questions}
    return of_benchmarks | shown


def trained_on(config: RunConfig, prompts: Prompts) -> list[tuple[int, GivenPrompt]]:
    """The prompts that are not held out, each with its index in the set.

    Raises what `read_prompts` raises, and `PromptsError` if all prompts are held out.
    """
    held_out = {normalised(text) for text in held_out_texts(config)}
    rows = enumerate(read_prompts(config, prompts))
    kept = [(index, prompt) for index, prompt in rows if normalised(prompt.text) not in held_out]
    if not kept:
        raise PromptsError(f"prompts {prompts.file}: expected some to train on, but all of them are held out")
    return kept
