"""Held-out benchmarks: questions with true answers that no stage learns from."""

from __future__ import annotations

import json
from pathlib import Path

from core.errors import CoevoError
from core.types import BenchmarkItem
from orchestrator.home import MICRO_MODEL


class BenchmarkError(CoevoError):
    """A benchmark file that cannot be used; names the file and the line."""


def load_benchmark(name: str) -> list[BenchmarkItem]:
    """`"micro"`, the tiny world's own, or a JSONL file of `{"id", "problem", "answer", "level"?}`."""
    path = MICRO_MODEL.parent / "benchmark.jsonl" if name == "micro" else Path(name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BenchmarkError(f"benchmark {name}: cannot read {path}: {error.strerror}") from error
    items = [_item(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if len({item.id for item in items}) != len(items) or not items:
        raise BenchmarkError(f"benchmark {path}: expected at least one question, and no id twice")
    return items


def _item(path: Path, number: int, line: str) -> BenchmarkItem:
    try:
        row = json.loads(line)
        level = row.get("level")
        return BenchmarkItem(
            str(row["id"]), str(row["problem"]), str(row["answer"]), None if level is None else str(level)
        )
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise BenchmarkError(
            f"benchmark {path}, line {number}: expected a JSON object with id, problem and answer: {error!r}"
        ) from error
