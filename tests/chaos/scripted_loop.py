"""A campaign on a loop without Ray. A kill costs a fraction of a second.

The stages, the ledger and the store are the real ones. The models are scripted: fake applications write the texts, and
a fake training writes weights that name its job. A bug is a function of `planted_bugs`; a campaign with one kill gives
the signal at which the bug does harm.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped] # noqa: F401 (here, so that the forks need not import it)
import pytest

from core.processes.faultpoints import faultpoint
from orchestrator import runs
from orchestrator.check.start import find_run
from orchestrator.installation.home import Home, Services
from orchestrator.ledger import run_held, run_once
from orchestrator.plan import plan
from orchestrator.run import Run
from orchestrator.stages.by_name import last_write_of
from orchestrator.stages.context import Context
from orchestrator.stages.training import running
from storage.session import open_store
from tests.chaos import planted_bugs, small_run
from tests.chaos.campaign import Campaign
from tests.chaos.trace import Strike
from tests.fake_training import fake_training
from trainers.base import TrainJob, TrainResult
from trainers.folders import appearing, remove

_SETTINGS = {
    "rollout_text": "all",
    "serving.batches": 1,
    "challenger.trained": False,
    "dataset.candidates": 140,
    "dataset.votes": 3,
    "dataset.delta": 0.5,
    "evaluation.samples": 1,
    "solver.training.steps": 2,
    "solver.training.prompts_per_step": 3,
    "solver.training.rollouts_per_prompt": 4,
}


def scripted_training(context: Context, job: TrainJob, steps_before: int | None = None) -> TrainResult:
    """A fake training with step folders as a real one has them. It takes the place of the real one, which needs Ray."""
    for step in range(1, job.training.steps + 1):
        if (folder := job.work_dir / f"step_{step}").exists():
            continue
        faultpoint("step begun", f"{job.key}/{step}")
        with appearing(folder) as unfinished:
            (unfinished / "state.json").write_text(str(step))
        faultpoint("step ended", f"{job.key}/{step}")
    return fake_training(context, job, steps_before)


def work(home: Home, services: Services, settings: dict[str, Any], _own_processes: bool) -> None:
    """Begin the run, or go on with it, to its end."""
    store = open_store(home.database)
    with run_held(store, small_run.NAME):
        preset = "" if find_run(store, small_run.NAME) else "demo"
        config = runs.prepare(home, store, small_run.NAME, preset, 2 if preset else 0, settings if preset else {})
        run = Run(small_run.NAME, home, store, services, config)
        with runs.status_kept(run):
            for t, stage in plan(config):
                context = Context(run, t, stage, lambda *_: None)
                run_once(store, context.key, partial(last_write_of, context))
                if stage == "train_solver":
                    remove(home.work / small_run.NAME / str(t) / stage)
                if stage == "check_health":
                    faultpoint("iteration ended", str(t))


@contextmanager
def scripted_run(home: Home, folder: Path) -> Iterator[Callable[[bool], None]]:
    """A function that works on the run, for forks of this process. The applications are those of another process.
    `folder` is for the benchmark."""
    open_store(home.database, create=True).close()
    settings = {**_SETTINGS, "evaluation.benchmark": str(small_run.write_benchmark(folder))}
    command = [sys.executable, "-m", "tests.chaos.scripted_applications"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as applications:
        assert applications.stdout is not None
        url = applications.stdout.readline().strip()
        pytest.MonkeyPatch().setattr(running, "run_training", scripted_training)
        try:
            yield partial(work, home, Services("", url, url, "", "token", {}), settings)
        finally:
            applications.kill()


def campaign_on(folder: Path, kills: int, strikes: Sequence[Strike] = ()) -> dict[str, Any]:
    """The outcome of a campaign in a home of its own."""
    home = Home(folder / "home")
    with scripted_run(home, folder) as work_on_it:
        campaign = Campaign(
            home,
            folder,
            work_on_it,
            kills=kills,
            seed=1,
            victims=("driver", "suspended"),
            strikes=strikes,
            report=lambda line: print(line, file=sys.stderr),
        )
        return campaign.run().as_json()


def outcome_with(bug: str, folder: Path) -> dict[str, Any]:
    """The outcome of a campaign with one kill, while this bug is planted."""
    return campaign_on(folder, 1, [getattr(planted_bugs, bug)()])
