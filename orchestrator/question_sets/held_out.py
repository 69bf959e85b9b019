"""Held-out benchmarks: questions with true answers that no stage trains on."""

from __future__ import annotations

import json
from pathlib import Path

from core.errors import CoevoError
from core.settings.config import RunConfig
from core.types import BenchmarkItem
from core.unicode import from_json
from orchestrator.installation.home import MICRO_MODEL
from trainers.micro.world import make_benchmark

_VALIDATION_SEED, _VALIDATION_PER_LEVEL = 777, 50


class BenchmarkError(CoevoError):
    """A benchmark file that cannot be used; the message names the file and the line."""


def load_benchmark(name: str) -> list[BenchmarkItem]:
    """The questions of a benchmark. Raises `BenchmarkError`.

    `name` is "micro" for the benchmark of the tiny world, "micro-validation" for 300 other questions of the tiny world,
    which are generated and always the same, or the path of a JSONL file of `{"id", "problem", "answer",
    "level"?}`.
    """
    if name == "micro-validation":
        return _validation()
    path = MICRO_MODEL.parent / "benchmark.jsonl" if name == "micro" else Path(name)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise BenchmarkError(f"benchmark {name}: cannot read {path}: {error.strerror}") from error
    items = [_item(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if len({item.id for item in items}) != len(items) or not items:
        raise BenchmarkError(
            f"benchmark {path}: expected at least one question and no id twice, got {len(items)} questions with "
            f"{len({item.id for item in items})} different ids"
        )
    return items


def held_out_texts(config: RunConfig) -> set[str]:
    """The questions that no Solver of a run may train on: those of its benchmark and of early stopping's benchmark.

    In test-time training the Solver trains on its benchmark, so those questions are not held out.
    """
    names = set() if config.test_time else {config.evaluation.benchmark}
    names |= {config.early_stopping.benchmark} if config.early_stopping is not None else set()
    return {item.problem for name in names for item in load_benchmark(name)}


def _validation() -> list[BenchmarkItem]:
    held_out = {item.problem for item in load_benchmark("micro")}
    problems = [
        problem for problem in make_benchmark(_VALIDATION_SEED, _VALIDATION_PER_LEVEL) if problem.text not in held_out
    ]
    return [
        BenchmarkItem(f"micro-validation/{i:04d}", problem.text, str(problem.answer), str(len(problem.operators)))
        for i, problem in enumerate(problems)
    ]


def _item(path: Path, number: int, line: str) -> BenchmarkItem:
    try:
        row = from_json(line)
        level = row.get("level")
        return BenchmarkItem(
            str(row["id"]), str(row["problem"]), str(row["answer"]), None if level is None else str(level)
        )
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise BenchmarkError(
            f"benchmark {path}, line {number}: expected a JSON object with id, problem and answer: {error!r}"
        ) from error
