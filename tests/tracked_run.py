"""A synthetic run that has trackers: iteration after iteration, as a flow stores them and tells of them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from core.settings.trackers import Trackers
from orchestrator.installation.home import Home
from orchestrator.run import Run
from orchestrator.trackers.tracked import tell_trackers
from services.drift.series import refresh
from storage import queries
from storage.session import Store
from tests.synthetic_run import CONFIG, NO_SERVICES, add_iteration, create

NAME = "tracked"
KEY = "words-of-a-key"


def fake_wandb(patch: pytest.MonkeyPatch, folder: Path, how: str) -> Path:
    """Have W&B's adapter use the package in `fake_trackers`, which fails in this way. Returns the file that it makes
    first."""
    reached, package = folder / "reached", Path(__file__).parent / "fake_trackers"
    patch.setenv("FAKE_TRACKER", how)
    patch.setenv("FAKE_TRACKER_REACHED", str(reached))
    patch.setenv("WANDB_API_KEY", KEY)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return reached


def tracked_run(store: Store, home: Home, trackers: Trackers) -> Run:
    """A run without an iteration."""
    config = CONFIG.model_copy(update={"trackers": trackers})
    with store.write() as session:
        create(session, NAME, config)
    return Run(NAME, home, store, NO_SERVICES, config)


def add(store: Store, iterations: Iterable[int]) -> None:
    for t in iterations:
        with store.write() as session:
            add_iteration(session, NAME, t, random.Random(t), per_level=2)
            refresh(session, NAME, t)
        tell_trackers(NAME, t)


def repeat_steps(store: Store, t: int, steps: dict[int, float]) -> None:
    """Store the Solver's steps of an iteration again, as after a kill: those after the first of `steps` are gone."""
    key = {"run": NAME, "iteration": t, "role": "solver"}
    with store.write() as session:
        queries.figures.remove_train_metrics(session, **key, after=min(steps) - 1)
        for step, kl in steps.items():
            queries.figures.add_train_metrics(session, **key, step=step, metrics={"kl": kl})
    tell_trackers(NAME, t)
