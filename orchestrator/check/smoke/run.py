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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
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
from orchestrator.check.smoke.settings import questions_of, smaller, write_questions
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
_Stage = tuple[int, str]  # iteration, and name


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
        write_questions(folder, questions)
        small = smaller(path, overrides, folder)
        with _services(folder, report) as (own, services), closing(open_store(own.database)) as store:
            error, stages = _run(own, services, store, preset, small, report)
            gap = gap_before = None
            if error is None:
                report("comparing the served Solver with the trainer's forward pass")
                with store.read() as session:
                    config = queries.runs.config_of_run(session, _RUN)
                    base, *_, solver = queries.checkpoints.solvers_of(session, _RUN)
                application = config.application("solver")
                try:  # the trained Solver is swapped in, if it is not yet
                    serve_checkpoints(services, {application: solver}, config.serving)
                    chats = [config.solver.template.messages(item.problem) for item in questions]
                    replies = canary.ask(services, application, solver, chats)
                    gap, gap_before = (canary.compare(Path(model.path), replies) for model in (solver, base))
                except CoevoError as failure:
                    error = str(failure)
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
    """Run the preset as `coevo run` does, and report each stage as it ends.

    Returns why the run failed, or None, and the figures of its stages.
    """
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    command = [sys.executable, "-m", "orchestrator.cli", "run", preset, "--name", _RUN, *arguments]
    log, memory, gpu_memory = own.logs / "run.log", dict[_Stage, float](), dict[_Stage, float]()
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment(own, services), stdout=output, stderr=output)
    reported, ended = set[_Stage](), False
    try:
        while not ended:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
                ended = True
            with store.read() as session:  # once more after the end, so that no stage is missed
                rows = queries.ledger.stages_of(session, _RUN)
            for row in rows:
                key = row.iteration, row.stage
                if row.status == "running":
                    memory[key] = max(memory.get(key, 0.0), psutil.virtual_memory().used / GIB)
                    if (used := gpu_memory_used()) is not None:
                        gpu_memory[key] = max(gpu_memory.get(key, 0.0), used)
                elif key not in reported:
                    reported.add(key)
                    took = "" if row.seconds is None else f" in {row.seconds:.1f} s"
                    report(f"{row.stage} {row.iteration}: {row.status}{took}")
    finally:
        process.terminate()
        process.wait()
    tokens, stages = Counter[_Stage](), list[StageFigures]()
    with store.read() as session:
        for usage in queries.usage.usage_of(session, _RUN):
            tokens[usage.iteration, usage.stage] += usage.reply_tokens
        for row in queries.ledger.stages_of(session, _RUN):
            key = row.iteration, row.stage
            stages.append(StageFigures(*key, row.seconds, tokens[key], memory.get(key), gpu_memory.get(key)))
        if process.returncode:
            return log.read_text(errors="replace")[-_TAIL:].strip(), stages
        status = queries.runs.get_run(session, _RUN).status
    return None if status == "done" else f"the run ended as {status}", stages
