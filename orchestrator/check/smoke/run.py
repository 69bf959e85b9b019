"""Runs a preset once with little work, in a home and with services of its own, and measures its stages.

Nothing of it touches the store, the checkpoints or the services of the machine's own home. Its Ray has the same GPUs,
though, so services that are up are refused: their applications or trainings could hold the memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from core.errors import CoevoError
from core.settings.parsing import load_config
from orchestrator.check.needs import gpu_memory_used
from orchestrator.check.presets import preset_path
from orchestrator.check.refusals import refuse_unready
from orchestrator.check.size.memory import GIB
from orchestrator.check.smoke import canary
from orchestrator.check.smoke.settings import Files, questions_of, smaller
from orchestrator.installation import cluster
from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, Services, home, make_private
from orchestrator.installation.ports import ANY_FREE
from orchestrator.serving.checkpoints import serve_checkpoints
from storage import queries
from storage.session import Store, open_store

_RUN = "smoke"
_POLL_S = 1.0
_TAIL = 2000  # characters of the run's output that a failure quotes
Report = Callable[[str], None]


class SmokeError(CoevoError):
    """A smoke run that cannot begin."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """What a stage took: `tokens` sampled, and the greatest memory in use meanwhile, in GiB: of the machine as a whole,
    and on its fullest GPU (None without a GPU)."""

    iteration: int
    stage: str
    seconds: float | None
    tokens: int
    memory_gib: float | None
    gpu_memory_gib: float | None

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.tokens and self.seconds else None


@dataclass(frozen=True, slots=True)
class Smoke:
    """The result of a smoke run. `error`: why it failed.

    `gap` is the difference of the served Solver to the weights that it should hold, `gap_before` that to the base
    model; None if the run did not come so far.
    """

    preset: str
    seconds: float
    stages: list[StageFigures]
    gap: canary.Gap | None
    gap_before: canary.Gap | None
    error: str | None

    @property
    def passed(self) -> bool:
        return self.error is None and self.gap is not None and self.gap.is_small


@dataclass(slots=True)
class _Peaks:
    """(iteration, stage) -> the greatest memory and GPU memory that were seen in use, in GiB."""

    memory: dict[tuple[int, str], float] = field(default_factory=dict)
    gpu: dict[tuple[int, str], float] = field(default_factory=dict)

    def note(self, stage: tuple[int, str]) -> None:
        self.memory[stage] = max(self.memory.get(stage, 0.0), psutil.virtual_memory().used / GIB)
        if (used := gpu_memory_used()) is not None:
            self.gpu[stage] = max(self.gpu.get(stage, 0.0), used)


def smoke(preset: str, overrides: Mapping[str, Any], keep: bool, report: Report) -> Smoke:
    """Run the preset's whole path once and remove what it made, unless `keep`.

    Raises `SmokeError`, `ConfigError`, `StartError` and what `refuse_unready` raises, if the run cannot begin. What
    fails later is part of the result.
    """
    if alive := cluster.running(home()):
        names = ", ".join(alive)
        raise SmokeError(f"services are up for {home().path} ({names}) and may hold GPUs: `coevo down` stops them")
    path = preset_path(preset)
    refuse_unready(load_config(path, overrides), new=True)
    questions = questions_of(load_config(path, overrides))
    since = time.monotonic()
    with _folder(preset, keep, report) as folder:
        files = Files(folder)
        files.write(questions)
        small = smaller(path, overrides, files)
        with _services(folder, report) as (own, services):
            store = open_store(own.database)
            error, stages = _run(own, services, store, preset, small, report)
            gap = gap_before = None
            if error is None:
                report("comparing the served Solver with the trainer's forward pass")
                try:
                    gap, gap_before = _canary(store, services, [item.problem for item in questions])
                except CoevoError as failure:
                    error = str(failure)
            store.close()
    return Smoke(preset, time.monotonic() - since, stages, gap, gap_before, error)


@contextmanager
def _folder(preset: str, keep: bool, report: Report) -> Iterator[Path]:
    """A folder for the run's files, in the machine's own home and so on the disk that real runs use."""
    parent = home().path / "smoke"
    make_private(home().path)
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{Path(preset).stem}-", dir=parent))
    try:
        yield folder
    finally:
        if keep:
            report(f"kept: COEVO_HOME={folder} coevo report {_RUN}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _services(folder: Path, report: Report) -> Iterator[tuple[Home, Services]]:
    """Services of the folder's own, with a store of its own, on free ports."""
    os.environ.pop("COEVO_DATABASE", None)  # its processes would use this database
    own = Home(folder)
    open_store(own.database, create=True).close()
    services = cluster.up(own, ANY_FREE, report, only=("ray", "prefect"))
    try:
        yield own, services
    finally:
        cluster.down(own)
        shutil.rmtree(own.ray_temp, ignore_errors=True)


def _run(
    own: Home, services: Services, store: Store, preset: str, settings: Mapping[str, Any], report: Report
) -> tuple[str | None, list[StageFigures]]:
    """Run the preset as `coevo run` does. Returns why it failed, or None, and the figures of its stages."""
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    command = [sys.executable, "-m", "orchestrator.cli", "run", preset, "--name", _RUN, *arguments]
    log, peaks = own.logs / "run.log", _Peaks()
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment(own, services), stdout=output, stderr=output)
    try:
        _follow(process, store, peaks, report)
    finally:
        process.terminate()
        process.wait()
    stages = _figures(store, peaks)
    if process.returncode:
        return log.read_text(errors="replace")[-_TAIL:].strip(), stages
    with store.read() as session:
        status = queries.runs.get_run(session, _RUN).status
    return None if status == "done" else f"the run ended as {status}", stages


def _follow(process: subprocess.Popen[bytes], store: Store, peaks: _Peaks, report: Report) -> None:
    """Report each stage as it ends, and note the memory in use, until the process ends."""
    reported = set[tuple[int, str]]()
    while True:
        try:
            process.wait(_POLL_S)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        with store.read() as session:
            rows = queries.ledger.stages_of(session, _RUN)
        for row in rows:
            key = row.iteration, row.stage
            if row.status == "running":
                peaks.note(key)
            elif key not in reported:
                reported.add(key)
                took = "" if row.seconds is None else f" in {row.seconds:.1f} s"
                report(f"{row.stage} {row.iteration}: {row.status}{took}")
        if ended:
            return


def _figures(store: Store, peaks: _Peaks) -> list[StageFigures]:
    tokens: dict[tuple[int, str], int] = {}
    with store.read() as session:
        rows = queries.ledger.stages_of(session, _RUN)
        for used in queries.usage.usage_of(session, _RUN):
            key = used.iteration, used.stage
            tokens[key] = tokens.get(key, 0) + used.reply_tokens
    return [
        StageFigures(
            row.iteration,
            row.stage,
            row.seconds,
            tokens.get((row.iteration, row.stage), 0),
            peaks.memory.get((row.iteration, row.stage)),
            peaks.gpu.get((row.iteration, row.stage)),
        )
        for row in rows
    ]


def _canary(store: Store, services: Services, questions: list[str]) -> tuple[canary.Gap, canary.Gap]:
    """Swap the trained Solver in, if it is not, and compare it with its own weights and with the base model's.

    Raises `CanaryError`, `ServeError`.
    """
    with store.read() as session:
        config = queries.runs.config_of_run(session, _RUN)
        base, *_, solver = queries.checkpoints.solvers_of(session, _RUN)
    application = config.application("solver")
    serve_checkpoints(services, {application: solver}, config.serving)
    chats = [config.solver.template.messages(question) for question in questions]
    replies = canary.ask(services, application, solver, chats)
    return canary.compare(Path(solver.path), replies), canary.compare(Path(base.path), replies)
