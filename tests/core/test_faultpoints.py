"""Fault points: inert unless armed, and each of them is somewhere in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.processes.faultpoints import FAULT_POINTS, arm, faultpoint

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "storage", "services", "trainers", "orchestrator")


@pytest.fixture
def hits() -> Iterator[list[tuple[str, str]]]:
    names = list[tuple[str, str]]()
    arm(lambda name, unit: names.append((name, unit)))
    yield names
    arm(None)


def test_an_armed_fault_point_calls_the_action_and_an_inert_one_nothing(hits: list[tuple[str, str]]) -> None:
    faultpoint("batch begun", "1/label_questions/0")
    arm(None)
    faultpoint("batch begun", "1/label_questions/1")
    assert hits == [("batch begun", "1/label_questions/0")]


def test_every_fault_point_is_in_the_code() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert {name for file in files for name in _names_in(file)} == {*FAULT_POINTS}


def _names_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "faultpoint":
            yield ast.literal_eval(node.args[0])
