"""How the caller of the embedded trainer notices that a job's workers hang, and kills them.

Each worker touches a file of its own whenever its model computes, for a sampled token or for a micro batch. A worker
that waits for another one does not, nor does one whose GPU does not answer. The caller looks at these files and at the
metrics. The file also says which process the worker is, so that it can be killed even if it answers nobody.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from core.waiting import clock
from trainers.local.order import Order
from trainers.silence import Silence

_log = logging.getLogger(__name__)

_BEAT_S = 1.0  # the file is not touched more often
_SAME_START_S = 5.0  # a process with the same id that started this much earlier or later is another one
_KILL_S = 60.0  # in which Ray must start a process on each worker's machine that kills the worker


class Heartbeat:
    """The worker's side. `beat` is called at every forward pass of its models."""

    def __init__(self, file: Path) -> None:
        own, self._file, self._last = psutil.Process(), file, clock.now()
        node = ray.get_runtime_context().get_node_id()
        file.write_text(json.dumps({"node": node, "pid": own.pid, "started": own.create_time()}))

    def beat(self, *_: object) -> None:
        now = clock.now()
        if now - self._last >= _BEAT_S:
            self._last = now
            os.utime(self._file)


class Watchdog:
    """The caller's side. It kills the workers of a job if nothing has come from them for too long; that they start
    again is the task of whoever started them."""

    def __init__(self, order: Order) -> None:
        self._order, self._silence = order, Silence(order.settings.progress_timeout)
        self._kills = 0

    def look(self) -> None:
        """Kill the workers if they hang. Is called again and again."""
        job = self._order.job
        files = [self._order.metrics, *map(self._order.heartbeat, range(job.training.workers))]
        if not self._silence.is_too_long([file.stat().st_mtime_ns if file.exists() else None for file in files]):
            return
        hang = f"{job.key}: nothing came from the training for {self._silence.longest_s:g} s"
        if not self._order.settings.own_processes:
            _log.error("%s, and it cannot be killed, because trainer.own_processes is false", hang)
            return
        self._kills += 1
        _log.error("%s, so its workers are killed", hang)
        kill: Any = ray.remote(num_cpus=0, max_retries=0)(_kill_process)
        tasks = []  # one on the machine of each worker
        for file in files[1:]:
            if file.exists() and (text := file.read_text()):  # empty for a moment while a worker starts
                worker = json.loads(text)
                here = NodeAffinitySchedulingStrategy(worker["node"], soft=False)
                tasks.append(kill.options(scheduling_strategy=here).remote(worker["pid"], worker["started"]))
        if not tasks:
            return
        done, _ = ray.wait(tasks, num_returns=len(tasks), timeout=_KILL_S)
        try:
            ray.get(done)
        except RayError as error:  # its machine is gone, for instance
            _log.warning("a worker could not be killed: %s", error)

    @property
    def cause(self) -> str:
        """The beginning of a failure's message: how often the workers were killed, if they were."""
        if not self._kills:
            return ""
        times = f"{self._kills} times" if self._kills > 1 else "once"
        return f"nothing came from the workers for {self._silence.longest_s:g} s, {times}, and they were killed: "


def _kill_process(pid: int, started: float) -> None:
    """Send SIGKILL to the process that has this id and started at this time, if there still is one."""
    try:
        process = psutil.Process(pid)
        if abs(process.create_time() - started) < _SAME_START_S:
            process.kill()
    except psutil.NoSuchProcess:
        return
