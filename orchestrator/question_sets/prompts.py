"""Given prompt sets: a file (`rows`), questions of the tiny world, or the benchmark's with labels hidden."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from core.errors import CoevoError
from core.questions.parsing import refuse_question
from core.seeds import seed_for
from core.settings.config import RunConfig
from core.settings.prompts import Prompts
from orchestrator.question_sets.benchmarks import load_benchmark
from orchestrator.question_sets.columns import answer_of, question_of, required
from orchestrator.question_sets.rows import read_rows
from trainers.micro.bases import BASES
from trainers.micro.world import make_problem


class PromptsError(CoevoError):
    """A prompt set that cannot be used; the message names the file, the line and the column."""


@dataclass(frozen=True, slots=True)
class GivenPrompt:
    """One prompt. `answer` is the true answer; None if the set has none."""

    text: str
    answer: str | None


def read_prompts(config: RunConfig, prompts: Prompts) -> list[GivenPrompt]:
    """The prompts of a run's prompt set, or of its labelled data, in the order of the file.

    Raises `PromptsError`, `BenchmarkError`.
    """
    if prompts.file in BASES:
        # Different questions, generated like those of the tiny base's corpus; none is in its benchmark.
        rng, generated = random.Random(seed_for(config.seed, "prompts")), list[GivenPrompt]()
        taken = {item.problem for item in load_benchmark(prompts.file)}
        while len(generated) < (prompts.limit or 0):
            problem = make_problem(rng, world=BASES[prompts.file].world)
            if problem.text not in taken:
                taken.add(problem.text)
                generated.append(GivenPrompt(problem.text, str(problem.answer)))
        return generated
    if prompts.file == "benchmark":
        items = load_benchmark(config.evaluation.benchmark)
        return [GivenPrompt(item.problem, item.answer) for item in items]
    result: list[GivenPrompt] = []
    for position, row in read_rows(Path(prompts.file), "prompts", PromptsError):
        if prompts.limit is not None and len(result) == prompts.limit:
            break
        if not isinstance(row, dict):
            raise PromptsError(f"{position}: expected an object with columns, got {str(row)[:80]!r}")
        text = required(question_of, row, prompts.question, position, PromptsError)
        if (fault := refuse_question(text, config.dataset.max_question_chars)) is not None:
            raise PromptsError(f"{position}: column {prompts.question!r}: {fault}")
        answer = None
        if prompts.answer is not None:
            answer = required(answer_of, row, prompts.answer, position, PromptsError)
        result.append(GivenPrompt(text, answer))
    if not result:
        raise PromptsError(f"prompts {prompts.file}: expected at least one, found none")
    return result
