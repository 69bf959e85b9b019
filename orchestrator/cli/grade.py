"""`coevo grade`: whether answers are equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from core.grading.grader import grade_pairs
from core.unicode import from_json
from orchestrator.cli.terminal import AsJson, clear_errors
from orchestrator.runs import RunError


def grade(
    a: Annotated[str | None, typer.Argument(help="An answer.", show_default=False)] = None,
    b: Annotated[str | None, typer.Argument(help="Another one.", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option(help='JSONL of {"a", "b"} instead.')] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether two answers are equal, unequal, or cannot be told apart."""
    with clear_errors():
        pairs = _pairs(file) if file else [(a, b)] if a is not None and b is not None else None
        if pairs is None:
            raise RunError("grade: expected two answers, or --file PAIRS.jsonl")
        graded = list(zip(pairs, grade_pairs(pairs), strict=True))
        if as_json:
            rows = [
                {"a": x, "b": y, "verdict": c.verdict, "reason": c.reason, "seconds": round(c.seconds, 4)}
                for (x, y), c in graded
            ]
            print(json.dumps(rows, indent=1))
        else:
            for _, c in graded:
                print(c.verdict + (f" ({c.reason})" if c.reason else ""))


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
            raise RunError(f"--file {file}, line {number}: expected a and b to be texts")
        pairs.append((a, b))
    return pairs
