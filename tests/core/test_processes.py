"""Which process is which, what importing costs, and fault points."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from core.processes import identity as processes
from core.processes.faultpoints import FAULT_POINTS, arm, faultpoint
from core.processes.imports import collection_paused

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "storage", "services", "trainers", "orchestrator")


def test_an_ended_process_is_not_running_even_if_it_is_a_zombie() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = processes.started(process.pid)
    assert processes.is_running(process.pid, since)
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is a zombie
    assert not processes.is_running(process.pid, since)
    process.wait()
    assert not processes.is_running(process.pid, since)
    with pytest.raises(psutil.NoSuchProcess):
        processes.started(process.pid)


def test_a_process_with_the_same_pid_and_another_start_is_not_the_same() -> None:
    me = os.getpid()
    assert not processes.is_running(me, processes.started(me) - 1)


def test_nothing_is_collected_in_the_block_and_what_it_made_is_left_out_of_later_collections() -> None:
    frozen = gc.get_freeze_count()
    with collection_paused():
        assert not gc.isenabled()
        made = [{"a": []} for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(made)


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
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "faultpoint"]
    assert {ast.literal_eval(call.args[0]) for call in calls} == {*FAULT_POINTS}
