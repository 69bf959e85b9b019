"""`coevo methods grade`: compare answers as a run compares them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from core.grading.grader import grade_pairs
from core.texts.unicode import from_json
from orchestrator.check.start import RunError
from orchestrator.cli.terminal import AsJson, print_json


def grade(
    a: Annotated[str | None, typer.Argument(help="First answer.", show_default=False)] = None,
    b: Annotated[str | None, typer.Argument(help="Second answer.", show_default=False)] = None,
    file: Annotated[
        Path | None, typer.Option(help='JSONL file of pairs, {"a": …, "b": …} on each line, instead of two answers.')
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether two answers are equal or unequal, or unknown if the comparison cannot be decided."""
    pairs = [(a, b)] if a is not None and b is not None else []
    if file is not None:
        pairs = []
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except OSError as error:
            raise RunError(f"--file: cannot read {file}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = from_json(line)
                first, second = row["a"], row["b"]
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                expected = "expected a JSON object with a and b"
                raise RunError(f"--file {file}, line {number}: {expected}: {error!r}") from error
            if not isinstance(first, str) or not isinstance(second, str):
                got = f"{type(first).__name__} and {type(second).__name__}"
                raise RunError(f"--file {file}, line {number}: expected a and b to be strings, got {got}")
            pairs.append((first, second))
    elif not pairs:
        raise RunError("answers: expected two answers, or --file PAIRS.jsonl")
    graded = [*zip(pairs, grade_pairs(pairs), strict=True)]
    if as_json:
        names = ("a", "b", "verdict", "reason", "seconds")
        rows = [(*pair, done.verdict, done.reason, round(done.seconds, 4)) for pair, done in graded]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    for _, comparison in graded:
        print(comparison.verdict + (f" ({comparison.reason})" if comparison.reason else ""))
