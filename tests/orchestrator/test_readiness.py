"""What keeps a run from starting, and how much of it the REST API's process can know (the rest: test_runs.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.settings.config import RunConfig
from core.settings.parsing import load_config
from orchestrator.installation import processes
from orchestrator.installation.home import PRESETS, Home, Services
from orchestrator.question_sets.held_out import BenchmarkError
from orchestrator.readiness import refuse_as_the_api_can
from trainers.base import TrainError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_RAY_ADDRESS", raising=False)
    return Home(tmp_path)


def _config(**overrides: object) -> RunConfig:
    return load_config(PRESETS / "demo.toml", overrides)


def test_beside_the_runner_the_api_looks_at_files_too(home: Home) -> None:
    """One `coevo up` started both, so the API finds its own process in services.json."""
    me = os.getpid()
    home.save_services(Services("", "", "", "", "", {me: ("api", processes.started(me))}))
    refuse_as_the_api_can(_config(), new=True)
    with pytest.raises(BenchmarkError, match=r"evaluation\.benchmark: "):
        refuse_as_the_api_can(_config(**{"evaluation.benchmark": "none.jsonl"}), new=True)


@pytest.mark.parametrize("up", [True, False])
def test_elsewhere_the_files_are_the_runners_and_the_settings_are_looked_at(home: Home, up: bool) -> None:
    if up:  # by somebody else than who started this API
        home.save_services(Services("", "", "", "", "", {2**22 + 1: ("api", 1.0)}))
    refuse_as_the_api_can(_config(**{"evaluation.benchmark": "none.jsonl", "base_model": "none"}), new=True)
    with pytest.raises(TrainError, match="GPUs: EasyR1 deals out"):
        refuse_as_the_api_can(_config(**{"trainer.type": "easyr1", "trainer.gpus_per_node": 7}), new=True)
