"""Is the machine ready? Makes all checks, one after the other, each within a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass

from core.errors import CoevoError
from orchestrator.check.machine import devices, model, packages, preset, resources, running
from orchestrator.check.machine.result import CheckFailed, Finding, Status, Subject

Check = Callable[[Subject], Finding]
_DEADLINE_S = 30.0
_WITH_PROCESS_S = devices.DEADLINE_S + 30  # for checks that wait for a process, which has a deadline of its own
# Python handles a Ctrl-C that comes just before a wait for another thread only when that wait has ended.
_LONGEST_WAIT_S = 0.5

OF_MACHINE: tuple[tuple[str, Check, float], ...] = (
    ("Python", packages.check_python, _DEADLINE_S),
    ("packages", packages.check_packages, _DEADLINE_S),
    ("home", resources.check_home, _DEADLINE_S),
    ("disk", resources.check_disk, _DEADLINE_S),
    ("memory", resources.check_memory, _DEADLINE_S),
    ("shared memory", resources.check_shared_memory, _DEADLINE_S),
    ("Ray's folder", resources.check_ray_folder, _DEADLINE_S),
    ("Ray's address", running.check_addresses, _DEADLINE_S),
    ("services", running.check_services, _DEADLINE_S),
    ("answers", running.check_answers, _DEADLINE_S),
    ("left over", running.check_left_over, _DEADLINE_S),
    ("ports", running.check_ports, _DEADLINE_S),
    ("database", running.check_database, _DEADLINE_S),
    ("GPUs", devices.check_gpus, _WITH_PROCESS_S),
    ("all-reduce", devices.check_all_reduce, _WITH_PROCESS_S),
    ("vLLM", devices.check_vllm, _WITH_PROCESS_S),
)
OF_PRESET: tuple[tuple[str, Check, float], ...] = (
    ("disk", resources.check_disk, _DEADLINE_S),
    ("base model", model.check_model, 2 * _DEADLINE_S),
    ("external services", preset.check_external, 2 * _DEADLINE_S),
    ("EasyR1", preset.check_easyr1, _WITH_PROCESS_S),
)


@dataclass(frozen=True, slots=True)
class Result:
    """One of the things that a check found, as a line of the screen and as JSON."""

    name: str
    status: Status
    detail: str
    remedy: str | None


def examine(subject: Subject, checks: Iterable[tuple[str, Check, float]]) -> Iterator[Result]:
    """The results of each check, `OF_MACHINE` or `OF_PRESET`, in order. No check takes longer than its deadline."""
    for name, check, deadline_s in checks:
        answer: Future[Finding] = Future()
        # A check that is late is left behind in its thread.
        threading.Thread(target=_answer, args=(answer, check, subject), name="check", daemon=True).start()
        deadline = time.monotonic() + deadline_s
        while not answer.done() and (left_s := deadline - time.monotonic()) > 0:
            wait([answer], min(left_s, _LONGEST_WAIT_S))
        try:
            finding = answer.result(0)
        except CheckFailed as fault:
            finding = Finding("fault", str(fault), fault.remedy)
        except (CoevoError, OSError) as error:  # a TimeoutError is an OSError
            late = not answer.done()
            finding = Finding("fault", f"no answer within {deadline_s:g} s" if late else str(error))
        yield Result(name, finding.status, finding.detail, finding.remedy)


def _answer(answer: Future[Finding], check: Check, subject: Subject) -> None:
    try:
        answer.set_result(check(subject))
    except Exception as error:  # noqa: BLE001 (passed to the thread that waits)
        answer.set_exception(error)
