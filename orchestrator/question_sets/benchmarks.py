"""Held-out benchmarks: questions with true answers that no stage trains on (docs/evaluation.md)."""

from __future__ import annotations

import hashlib
import json
import os
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from core.errors import CoevoError
from core.grading.kinds import cleaned
from core.seeds import seed_for
from core.settings.config import RunConfig
from core.settings.evaluation import OWN_PROMPTS, Benchmark, Columns, Protocol, Suite
from core.settings.parsing import ConfigError, validated
from core.settings.templates import SolverTemplate
from core.settings.toml_text import from_toml
from core.types import BenchmarkItem
from core.validation.suggestions import no_such
from orchestrator.installation.home import BENCHMARKS, SUITES, home, make_private
from orchestrator.question_sets import hub
from orchestrator.question_sets.columns import answer_of, optional, question_of, required, text_of, value_of
from orchestrator.question_sets.rows import SUFFIXES, is_path, read_rows
from trainers.micro.bases import BASES
from trainers.micro.world import make_benchmark

SAMPLE_SEED = 778  # of the questions that a limit leaves
_VALIDATION_SEED, _VALIDATION_PER_LEVEL = 777, 50
_VALIDATION = {f"{base}-validation": base for base in BASES}
_TINY_WORLD = {
    **{name: f"the benchmark of the tiny base {name}" for name in BASES},
    **{name: f"other questions like those of {base}" for name, base in _VALIDATION.items()},
}
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Definition = TypeVar("Definition", bound=BaseModel)


class BenchmarkError(CoevoError):
    """A benchmark or a suite that cannot be used; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """A benchmark with its questions. `sha256` is that of `items` with their answers, levels and subjects.

    `sampled_from` is the number of the benchmark's questions if `items` are a sample of them; None if they are all.
    """

    name: str
    definition: Benchmark
    items: tuple[BenchmarkItem, ...]
    sha256: str
    sampled_from: int | None = None

    def asked_with(self, template: SolverTemplate) -> LoadedBenchmark:
        """The benchmark with this template, if its definition sets no prompt (`Benchmark.asked_with`)."""
        return replace(self, definition=self.definition.asked_with(template))


def load_benchmark(name: str) -> list[BenchmarkItem]:
    """The questions of a benchmark, without their sha256, which takes as long as to read them. See `load`."""
    return _questions(name, definition_of(name))


def load(name: str, definition: Benchmark | None = None, limit: int = 0) -> LoadedBenchmark:
    """A benchmark by its name in deploy/benchmarks, or by its file. Raises `BenchmarkError`.

    `name` is also "micro" or "micro-long" for the benchmark of a tiny base, or "micro-validation" or
    "micro-long-validation" for 50 other questions of each level, which are generated and always the same. Else it is
    the path of a file or a folder (`rows`), whose columns `definition` names; or the path of a TOML file with a
    definition, beside the file with the questions. With a `limit`, only a sample of so many questions is used.
    """
    if definition is None or name in _VALIDATION:
        definition = definition_of(name)
    questions = _questions(name, definition)
    if not 0 < limit < len(questions):
        return with_sha256(name, definition, questions)
    # A random sample: a file may begin with the easiest questions. It depends on nothing but the questions' ids: every
    # model is asked the same ones, whatever the evaluation's seed, and a larger sample contains a smaller one.
    drawn = {item.id for item in sorted(questions, key=lambda item: seed_for(SAMPLE_SEED, item.id))[:limit]}
    sample = [item for item in questions if item.id in drawn]
    return replace(with_sha256(name, definition, sample), sampled_from=len(questions))


def _questions(name: str, definition: Benchmark) -> list[BenchmarkItem]:
    if name in _VALIDATION:
        base = _VALIDATION[name]
        held_out = {item.problem for item in load_benchmark(base)}
        drawn = make_benchmark(_VALIDATION_SEED, _VALIDATION_PER_LEVEL, BASES[base].world)
        problems = [problem for problem in drawn if problem.text not in held_out]
        return [
            BenchmarkItem(f"{name}/{i:04d}", problem.text, str(problem.answer), str(problem.operations))
            for i, problem in enumerate(problems)
        ]
    if name in BASES:
        path = BASES[name].benchmark
    else:
        path = Path(name) if is_path(name) else _local_file(name) or _from_hub(name, definition)
    rows = read_rows(path, "benchmark", BenchmarkError)
    items = [_item(definition, path, number, position, row) for number, (position, row) in enumerate(rows)]
    if len({item.id for item in items}) != len(items) or not items:
        raise BenchmarkError(
            f"benchmark {path}: expected at least one question and no id twice, got {len(items)} questions with "
            f"{len({item.id for item in items})} different ids"
        )
    return items


def definition_of(name: str) -> Benchmark:
    """How a benchmark is asked. A file that is given by its path has the default columns. Raises `BenchmarkError`."""
    if name in _TINY_WORLD:
        return Benchmark(title=f"tiny world: {_TINY_WORLD[name]}", source="trainers/micro")
    if name == OWN_PROMPTS:
        return Benchmark(title="a share of the run's own prompts", source="the run's prompt set")
    if is_path(name):
        return Benchmark(title=Path(name).stem, source=name)
    path = Path(name) if name.endswith(".toml") else BENCHMARKS / f"{name}.toml"
    if not path.is_file():
        otherwise = f", or the path of a file ({', '.join(SUFFIXES)}, or .toml with a definition)"
        raise BenchmarkError(f"benchmark {name}: {no_such('benchmark', known_benchmarks(), name, otherwise)}")
    return _parsed(Benchmark, path, "benchmark")


def is_here(name: str) -> bool:
    """Whether a benchmark's questions are on this machine, so that nothing must be fetched to load them.

    A run's own prompts are where its prompt set is.
    """
    return name in _TINY_WORLD or name == OWN_PROMPTS or _local_file(name) is not None


def is_fetched(name: str) -> bool:
    """Whether a benchmark that is not on this machine is fetched when a run starts. Raises `BenchmarkError`."""
    return not is_here(name) and definition_of(name).hub is not None


def known_benchmarks() -> list[str]:
    return [*sorted(path.stem for path in BENCHMARKS.glob("*.toml")), *_TINY_WORLD]


def known_suites() -> list[str]:
    return sorted(path.stem for path in SUITES.glob("*.toml"))


def read_suite(name: str) -> Suite:
    """A suite by its name in deploy/suites, or the path of its TOML file. Raises `BenchmarkError`."""
    path = Path(name) if name.endswith(".toml") else SUITES / f"{name}.toml"
    if not path.is_file():
        otherwise = ", or the path of a TOML file"
        raise BenchmarkError(f"suite {name}: {no_such('suite', known_suites(), name, otherwise)}")
    return _parsed(Suite, path, "suite")


def evaluated_in(config: RunConfig) -> dict[str, Protocol]:
    """The benchmarks that a run's `evaluate` stage asks, and how: its own, those of its suite, and early stopping's.

    A benchmark that is named twice is asked once, in the way that comes first.
    """
    settings = config.evaluation
    own = Protocol(samples=settings.samples, sampling=settings.sampling)
    protocols = dict.fromkeys([settings.benchmark, *settings.also], own)
    if config.early_stopping is not None:
        protocols.setdefault(config.early_stopping.benchmark, own)
    of_suite = read_suite(settings.suite).protocols() if settings.suite is not None else {}
    return {**protocols, **{name: protocol for name, protocol in of_suite.items() if name not in protocols}}


def with_sha256(name: str, definition: Benchmark, items: Sequence[BenchmarkItem]) -> LoadedBenchmark:
    return LoadedBenchmark(name, definition, tuple(items), sha256_of(items))


def sha256_of(items: Sequence[BenchmarkItem]) -> str:
    """The sha256 of a benchmark's questions with all that is known of them, in the order of its file."""
    return hashlib.sha256(json.dumps([asdict(item) for item in items], ensure_ascii=False).encode()).hexdigest()


def _parsed(kind: type[Definition], path: Path, what: str) -> Definition:
    try:
        tree = from_toml(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BenchmarkError(f"{what} {path}: not valid TOML: {error}") from error
    try:
        return validated(kind, tree, f"{what} {path}")
    except ConfigError as error:
        raise BenchmarkError(str(error)) from error


def expected_file(name: str) -> Path:
    """Where the questions of a benchmark are expected: the file itself if its path is given, else one in JSONL."""
    return Path(name) if is_path(name) else Path(f"{_stem(name)}.jsonl")


def benchmark_folder() -> Path:
    """Where the files of named benchmarks are: `$COEVO_BENCHMARKS`, or `benchmarks` in the home."""
    return Path(os.environ.get("COEVO_BENCHMARKS") or home().path / "benchmarks")


def _local_file(name: str) -> Path | None:
    candidates = [Path(name)] if is_path(name) else [Path(f"{_stem(name)}{suffix}") for suffix in SUFFIXES]
    return next((path for path in candidates if path.exists()), None)


def _stem(name: str) -> Path:
    """Where the file of a benchmark with a definition is expected, without the file's suffix."""
    return Path(name).with_suffix("") if name.endswith(".toml") else benchmark_folder() / name


def _from_hub(name: str, definition: Benchmark) -> Path:
    columns, stem = definition.columns, _stem(name)
    wanted = f"put it at {stem}{{{','.join(SUFFIXES)}}}, with the columns {columns.question!r} and {columns.answer!r}"
    if columns.options is not None:
        wanted += f" and, for the options, {columns.options!r}"
    if definition.hub is None:
        raise BenchmarkError(f"benchmark {name}: no such file: {wanted}. Its source: {definition.source}")
    if (own := home().path) in stem.parents and not own.exists():
        make_private(own)  # as `coevo up` does, which refuses a home that others may enter
    try:
        return hub.fetch(definition.hub, stem.with_suffix(".parquet"))
    except hub.HubError as error:
        raise BenchmarkError(f"benchmark {name}: there is no local file, and {error}. Else {wanted}") from error


def _item(definition: Benchmark, path: Path, number: int, position: str, row: Any) -> BenchmarkItem:
    """One row of the file as a question. `position` begins the message of a `BenchmarkError`."""
    columns = definition.columns
    if not isinstance(row, dict):
        raise BenchmarkError(f"{position}: expected an object with columns, got {str(row)[:80]!r}")
    key = _label(row, columns.id, position) or f"{path.stem}/{number:05d}"
    question = required(question_of, row, columns.question, position, BenchmarkError)
    if columns.options is None:
        answer = _answer(definition.answer_after, row, columns.answer, position)
    else:
        options, answer = _options(columns, columns.options, row, key, position)
        lines = (
            definition.option.replace("{letter}", letter).replace("{text}", option)
            for letter, option in zip(_LETTERS, options, strict=False)
        )
        question += definition.before_options + "\n".join(lines)
    if (true := cleaned(definition.answers, answer)) is None:
        raise BenchmarkError(f"{position}: column {columns.answer!r}: expected an answer, got {answer[:80]!r}")
    level, subject = _label(row, columns.level, position), _label(row, columns.subject, position)
    return BenchmarkItem(key, question, true, level, subject)


def _options(
    columns: Columns, options: str | tuple[str, ...], row: Mapping[str, Any], key: str, position: str
) -> tuple[list[str], str]:
    """The options in order, and the letter of the right one."""
    if not isinstance(options, str):
        texts = [required(text_of, row, name, position, BenchmarkError) for name in options]
        order = random.Random(seed_for(0, "options", key)).sample(range(len(texts)), len(texts))
        return [texts[i] for i in order], _LETTERS[order.index(0)]
    values, answer = value_of(row, options), required(text_of, row, columns.answer, position, BenchmarkError)
    if not isinstance(values, list) or not 2 <= len(values) <= len(_LETTERS):
        raise BenchmarkError(f"{position}: column {options!r}: expected a list of options, got {str(values)[:80]!r}")
    letter = cleaned("choice", answer)
    if letter is None or letter not in _LETTERS[: len(values)]:
        raise BenchmarkError(
            f"{position}: column {columns.answer!r}: expected a letter up to {_LETTERS[len(values) - 1]}, "
            f"got {answer[:80]!r}"
        )

    def option(parts: Any, number: int) -> str | None:
        return text_of(parts[number])

    reads = (partial(option, number=number) for number in range(len(values)))
    return [required(read, row, options, position, BenchmarkError) for read in reads], letter


def _label(row: Mapping[str, Any], column: str, position: str) -> str | None:
    """An id, a level or a subject; the first if there is a list of them."""

    def first(value: Any) -> str | None:
        return text_of(value[0] if isinstance(value, list) and value else value)

    return optional(first, row, column, position, BenchmarkError)


def _answer(mark: str | None, row: Mapping[str, Any], column: str, position: str) -> str:
    """The true answer, or what is behind the last `mark` in each text."""

    def behind(value: Any) -> Any:
        if isinstance(value, list):
            return [behind(part) for part in value]
        return value.rpartition(mark)[2].strip() if mark is not None and isinstance(value, str) else value

    return required(lambda value: answer_of(behind(value)), row, column, position, BenchmarkError)
