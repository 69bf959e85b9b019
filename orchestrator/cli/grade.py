"""`coevo methods grade`: compare answers as a run compares them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from core.grading.grader import grade_pairs
from core.unicode import from_json
from orchestrator.check.start import RunError
from orchestrator.cli.terminal import AsJson, clear_errors


def grade(
    a: Annotated[str | None, typer.Argument(help="First answer.", show_default=False)] = None,
    b: Annotated[str | None, typer.Argument(help="Second answer.", show_default=False)] = None,
    file: Annotated[
        Path | None, typer.Option(help='JSONL file of pairs, {"a": …, "b": …} on each line, instead of two answers.')
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether two answers are equal or unequal, or unknown if the comparison cannot be decided."""
    with clear_errors():
        pairs = _pairs(file) if file else [(a, b)] if a is not None and b is not None else None
        if pairs is None:
            raise RunError("answers: expected two answers, or --file PAIRS.jsonl")
        graded = list(zip(pairs, grade_pairs(pairs), strict=True))
        if as_json:
            rows = [
                {
                    "a": first,
                    "b": second,
                    "verdict": comparison.verdict,
                    "reason": comparison.reason,
                    "seconds": round(comparison.seconds, 4),
                }
                for (first, second), comparison in graded
            ]
            print(json.dumps(rows, indent=1))
        else:
            for _, comparison in graded:
                print(comparison.verdict + (f" ({comparison.reason})" if comparison.reason else ""))


def _pairs(file: Path) -> list[tuple[str, str]]:
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
            a, b = row["a"], row["b"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise RunError(f"--file {file}, line {number}: expected a JSON object with a and b: {error!r}") from error
        if not isinstance(a, str) or not isinstance(b, str):
            raise RunError(
                f"--file {file}, line {number}: expected a and b to be strings, "
                f"got {type(a).__name__} and {type(b).__name__}"
            )
        pairs.append((a, b))
    return pairs
