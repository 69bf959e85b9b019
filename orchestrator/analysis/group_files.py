"""Reads groups of rollouts from a JSONL file, so that anybody can check a method's numbers: `coevo methods score`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import CoevoError
from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.methods import Method
from core.rollouts.embedding import hashed_embeddings
from core.rollouts.groups import make_groups
from core.rollouts.strategies import skeleton_clusters
from core.texts.unicode import from_json
from core.types import Group

Finite = Annotated[float, Field(allow_inf_nan=False)]


class GroupFileError(CoevoError):
    """A file of groups that cannot be used; names the line and the field."""


class RolloutLine(BaseModel):
    """One rollout. If `answer` is missing, it is extracted from the text; null means that the rollout has no answer."""

    model_config = ConfigDict(extra="ignore")

    text: str = ""
    answer: str | None = None
    mean_entropy: Finite | None = None
    embedding: list[Finite] | None = None
    cluster: int | None = None


class GroupLine(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(extra="ignore")

    question_id: str
    rollouts: list[RolloutLine] = Field(min_length=1)
    label: str | None = None


def read_groups(path: Path) -> list[GroupLine]:
    """The groups of a JSONL file, one a line; empty lines are skipped. Raises `GroupFileError`."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise GroupFileError(f"groups {path}: cannot be read: {error}") from error
    groups = [_group(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not groups:
        raise GroupFileError(f"groups {path}: expected at least one group, found none")
    return groups


def _group(path: Path, number: int, line: str) -> GroupLine:
    try:
        return GroupLine.model_validate(from_json(line))
    except json.JSONDecodeError as error:
        raise GroupFileError(f"groups {path}, line {number}: not JSON: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the line"
        raise GroupFileError(
            f"groups {path}, line {number}: {where}: {first['msg']} (got {str(first['input'])[:80]!r})"
        ) from error


def with_signals(lines: Sequence[GroupLine], method: Method, note: Callable[[str], None]) -> list[Group]:
    """The groups with every signal that the method needs. `note` is called for each signal that is computed here.

    Raises `GroupFileError` for a signal that is missing and cannot be computed.
    """
    if "label" in method.needs and (unlabelled := [line for line in lines if line.label is None]):
        raise GroupFileError(
            f"question {unlabelled[0].question_id}: label: this method learns from labels that come with the "
            "questions; expected one, got none"
        )
    answers = [
        [
            rollout.answer if "answer" in rollout.model_fields_set else extract_boxed(rollout.text)
            for rollout in line.rollouts
        ]
        for line in lines
    ]
    with Grader() as grader:
        groups = make_groups(answers, [line.label for line in lines], grader)
    groups = [
        replace(group, question_id=line.question_id, seed=index)
        for index, (line, group) in enumerate(zip(lines, groups, strict=True))
    ]
    if "mean_entropy" in method.needs:
        groups = [
            replace(group, mean_entropy=np.array(_all(line, "mean_entropy")))
            for line, group in zip(lines, groups, strict=True)
        ]
    if "embeddings" in method.needs:
        groups = [replace(group, embeddings=_embeddings(line)) for line, group in zip(lines, groups, strict=True)]
        if any(rollout.embedding is None for line in lines for rollout in line.rollouts):
            note("embeddings: missing in the file, so hashed words and word pairs of the texts are used")
    if "clusters" in method.needs:
        groups = [replace(group, clusters=_clusters(line)) for line, group in zip(lines, groups, strict=True)]
        if any(rollout.cluster is None for line in lines for rollout in line.rollouts):
            note("clusters: missing in the file, so skeletons of the texts are used")
    return groups


def _embeddings(line: GroupLine) -> np.ndarray[Any, np.dtype[np.float64]]:
    if all(rollout.embedding is None for rollout in line.rollouts):
        return hashed_embeddings([rollout.text for rollout in line.rollouts])
    rows = _all(line, "embedding")
    if len({len(row) for row in rows}) != 1:
        raise GroupFileError(f"question {line.question_id}: rollouts.embedding: expected vectors of equal length")
    return np.array(rows)


def _clusters(line: GroupLine) -> tuple[int, ...]:
    if all(rollout.cluster is None for rollout in line.rollouts):
        return skeleton_clusters([rollout.text for rollout in line.rollouts])
    return tuple(_all(line, "cluster"))


def _all(line: GroupLine, name: str) -> list[Any]:
    """The field `name` of every rollout. Raises `GroupFileError` if a rollout lacks it."""
    values = [getattr(rollout, name) for rollout in line.rollouts]
    if None in values:
        raise GroupFileError(
            f"question {line.question_id}: rollouts.{values.index(None)}.{name}: this method needs it of every rollout"
        )
    return values
