"""Whether torch, NCCL and vLLM can use the GPUs of this machine. Each is asked in a process that can be killed."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orchestrator.check.machine.result import CheckFailed, Finding, Subject, ok, skipped

DEADLINE_S = 120.0  # of an answer; importing vLLM takes a minute on a cold disk
_started = set[int]()  # process groups that have not been killed yet
_starting = threading.Lock()  # held while a process is started and added to these


def ask(question: str, *arguments: str) -> Any:
    """The answer of `probe`. Raises `CheckFailed` if its process fails or is late."""
    command = [sys.executable, "-m", "orchestrator.check.machine.probe", question, *arguments]
    return json.loads(run(command, {**os.environ, "VLLM_NO_USAGE_STATS": "1"}).splitlines()[-1])


def run(command: list[str], environ: Mapping[str, str]) -> str:
    """The standard output of a command, which is killed with its children at the end. Raises `CheckFailed`."""
    with _starting:
        try:
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                command, env=environ, stdout=pipe, stderr=pipe, text=True, start_new_session=True
            )
        except OSError as error:
            raise CheckFailed(f"{command[0]} cannot be run: {error.strerror}") from error
        _started.add(process.pid)
    try:
        output, errors = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        raise CheckFailed(f"no answer within {DEADLINE_S:g} s") from error
    finally:
        _kill(process.pid)
    if process.returncode:
        lines = errors.strip().splitlines() or [f"exit status {process.returncode}"]
        raise CheckFailed(lines[-1][:500])
    return output


def _kill(group: int) -> None:
    _started.discard(group)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@atexit.register
def _kill_all() -> None:
    """Ctrl-C ends the command while a check waits in its thread, which then comes to no end of its own."""
    _starting.acquire()  # never released, so that no check starts another process
    for group in [*_started]:
        _kill(group)


@functools.cache
def devices() -> dict[str, Any]:
    """What torch sees; asked once for all checks. Raises `CheckFailed`."""
    answer: dict[str, Any] = ask("devices")
    return answer


def check_gpus(_: Subject) -> Finding:
    """Whether torch sees the GPUs of this machine and can compute on each."""
    seen = devices()
    if not seen["gpus"]:
        if not Path("/dev/nvidiactl").exists():
            return skipped(f"this machine has no GPU (torch {seen['torch']})")
        reason, hidden = seen["reason"], os.environ.get("CUDA_VISIBLE_DEVICES")
        if reason is None and seen["cuda"] is None:
            reason = "it is a build for CPUs"
        elif reason is None and hidden is not None:
            reason = f"CUDA_VISIBLE_DEVICES is {hidden!r}"
        raise CheckFailed(
            f"torch {seen['torch']} sees none of the machine's GPUs: {reason or 'it does not say why'}",
            "install a torch that is built for the driver's CUDA, and give the container the GPUs",
        )
    if broken := [f"{index} ({gpu['name']}): {gpu['error']}" for index, gpu in enumerate(seen["gpus"]) if gpu["error"]]:
        raise CheckFailed(f"torch {seen['torch']} cannot compute on GPU {'; '.join(broken)}")
    names = ", ".join(f"{gpu['name']} of {gpu['gib']:.0f} GiB" for gpu in seen["gpus"])
    return ok(f"torch {seen['torch']} computes on {names}")


def check_all_reduce(_: Subject) -> Finding:
    """Whether the GPUs, or without them two processes, can sum a tensor together, as trainers and vLLM do."""
    answer = ask("all_reduce", str(len(devices()["gpus"])))
    members = f"{answer['ranks']} {'GPUs' if answer['backend'] == 'nccl' else 'processes on the CPU'}"
    return ok(f"a sum over {members} with {answer['backend']} is right; {answer['seconds']:.0f} s with the start")


def check_vllm(_: Subject) -> Finding:
    """Whether vLLM can be imported and has kernels for this machine, if it is installed."""
    if find_spec("vllm") is None:
        return skipped("not installed; only presets whose applications use it need it")
    try:
        answer = ask("vllm")
    except CheckFailed as error:
        remedy = "for GPUs pip install -e '.[vllm]', for a CPU deploy/vllm-cpu.sh (docs/gpu.md)"
        raise CheckFailed(f"vLLM cannot be used: {error}", remedy) from error
    return ok(f"vLLM {answer['version']} has kernels for this machine")
