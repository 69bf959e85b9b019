"""What a training is told of the application that samples its rollouts, and what stages hold meanwhile."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.settings.config import RunConfig
from core.settings.parsing import load_config
from core.settings.trainers import EasyR1Settings, LocalSettings
from core.settings.training import Sampling, TrainingSampling
from core.types import Checkpoint
from orchestrator.check import refusals
from orchestrator.installation import cluster
from orchestrator.installation.home import APPLICATIONS, MICRO_MODEL, PRESETS, Home, NotPrivate, Services
from orchestrator.serving.applications import dtype_of, read_applications
from orchestrator.stages.training import sampling
from orchestrator.stages.training.jobs import solver_job
from orchestrator.stages.training.sampling import sampler_of, samples
from storage.session import Store
from tests.synthetic_run import CONFIG, context_of, create
from trainers.base import SamplerService, SolverJob

BASE = Checkpoint("r/base/0", "r", "base", 0, 0, str(MICRO_MODEL), "0" * 64, None)
BY_APPLICATION = LocalSettings(sampler="application")
ONE, TWO = [{"Alive": True}, {"Alive": False}], [{"Alive": True}] * 2


def config_of(**changes: Any) -> RunConfig:
    return CONFIG.model_copy(update={"trainer": BY_APPLICATION, **changes})


def job_of(config: RunConfig, work_dir: Path, temperature: float = 1.0) -> SolverJob:
    job = solver_job(config, "1/train_solver", BASE, (), work_dir)
    sampled = TrainingSampling(**Sampling(temperature=temperature).model_dump(exclude={"top_k"}))
    return replace(job, training=job.training.model_copy(update={"sampling": sampled}))


def sampler(
    store: Store,
    config: RunConfig,
    job: SolverJob,
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[dict[str, Any]] = ONE,
    processes: Any = None,
) -> SamplerService | None:
    """As a stage gets it, on a Ray with these nodes, whose services `coevo up` started if there are `processes`."""
    monkeypatch.setattr(sampling.ray, "nodes", lambda: nodes)
    context = context_of(store, "r", 1, config=config)
    services = Services("", "http://127.0.0.1:1", "http://127.0.0.1:2", "", "secret", processes or {})
    return sampler_of(replace(context, run=replace(context.run, home=Home(job.work_dir), services=services)), job)


@pytest.fixture
def run(sqlite: Store) -> Store:
    with sqlite.write() as session:
        create(session, "r", CONFIG)
    return sqlite


def test_only_the_setting_makes_an_application_sample(
    run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings in (LocalSettings(), EasyR1Settings()):
        config = config_of(trainer=settings)
        assert sampler(run, config, job_of(config, tmp_path), monkeypatch) is None
        assert samples(config, "solver", BASE) == {}
    config = config_of()
    assert samples(config, "solver", BASE) == {"solver": BASE}
    found = sampler(run, config, job_of(config, tmp_path), monkeypatch)
    assert found is not None
    assert (found.url, found.application, found.run) == ("http://127.0.0.1:2/solver/v1", "solver", "r")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("file", "temperature", "comparable"),
    [("embedded", 0.7, True), ("rzero-8-gpus", 1.0, True), ("rzero-8-gpus", 0.7, False)],
)
def test_vllm_s_log_probabilities_are_the_trainer_s_at_temperature_1_only(
    run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, temperature: float, comparable: bool
) -> None:
    config = config_of(serving=CONFIG.serving.model_copy(update={"applications": file}))
    found = sampler(run, config, job_of(config, tmp_path, temperature), monkeypatch)
    assert found is not None
    assert found.logprobs_comparable is comparable


@pytest.mark.parametrize(
    ("file", "expected"), [("embedded", "float32"), ("vllm-cpu", "float32"), ("rzero-8-gpus", "bfloat16")]
)
def test_weights_are_written_in_the_type_in_which_they_are_served(file: str, expected: str, tmp_path: Path) -> None:
    applications = read_applications(file)
    assert dtype_of(applications["solver"]) == expected
    unnamed = yaml.safe_load((APPLICATIONS / "rzero-8-gpus.yaml").read_text())["applications"][1]
    del unnamed["args"]["llm_configs"][0]["engine_kwargs"]["dtype"]
    assert dtype_of(unnamed) == "float32"
    assert dtype_of({**applications["challenger"], "args": {"device": "cuda"}}) == "bfloat16"


def test_weights_are_in_the_memory_of_the_only_machine_and_gone_after_coevo_down(
    run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, home = config_of(), Home(tmp_path)
    job, up = job_of(config, tmp_path), {1: ("ray", 1.0)}
    for nodes, processes in ((TWO, up), (ONE, {})):
        found = sampler(run, config, job, monkeypatch, nodes, processes)
        assert found is not None
        assert found.memory is None
    found = sampler(run, config, job, monkeypatch, ONE, up)
    assert found is not None
    assert found.memory == home.memory
    assert stat.S_IMODE(home.memory.stat().st_mode) == 0o700
    monkeypatch.setattr(sampling, "_ROOM", 10**15)
    full = sampler(run, config, job, monkeypatch, ONE, up)
    assert full is not None
    assert full.memory is None
    monkeypatch.undo()
    (home.memory / "job").mkdir()
    home.save_services(Services("", "", "", "", "", {}))
    cluster.down(home)
    assert not home.memory.exists()


def test_a_folder_in_memory_that_others_may_enter_is_refused(
    run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    monkeypatch.setattr(Home, "memory", tmp_path / "shm" / f"coevo-{os.getuid()}" / "home")
    home.memory.mkdir(parents=True, mode=0o755)
    home.memory.parent.chmod(0o700)
    with pytest.raises(NotPrivate):
        sampler(run, config_of(), job_of(config_of(), tmp_path), monkeypatch, ONE, {1: ("ray", 1.0)})


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, False),
        ({"serving.applications": "rzero-8-gpus"}, True),
        ({"serving.applications": "rzero-8-gpus", "shared": True}, True),
        ({"serving.applications": "rzero-8-gpus", "challenger.trained": False}, True),
        ({"trainer.type": "easyr1", "trainer.gpus_per_node": 1}, True),
        ({"trainer.type": "easyr1", "trainer.gpus_per_node": 1, "challenger.trained": False}, False),
    ],
)
def test_only_the_embedded_engine_masks_a_vocabulary(settings: dict[str, Any], refused: bool) -> None:
    faults = [
        [fault.setting for fault in refusals.unready(load_config(PRESETS / "demo.toml", given), new=False, fetch=False)]
        for given in (settings, {**settings, "challenger.vocabulary_retention": 0.8})
    ]
    assert "challenger.vocabulary_retention" not in faults[0]
    assert faults[1].count("challenger.vocabulary_retention") == refused


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"serving.applications": "rzero-8-gpus"}, []),
        (
            {
                "serving.applications": "rzero-8-gpus",
                "solver.training.sampling.temperature": 0.6,
                "challenger.training.sampling.temperature": 0.7,
            },
            ["challenger.training.sampling.temperature", "solver.training.sampling.temperature"],
        ),
        ({"serving.applications": "rzero-8-gpus", "solver.reward.type": "scrl"}, ["trainer.ahead"]),
        ({"solver.reward.type": "scrl", "solver.training.sampling.temperature": 0.6}, []),  # the embedded engine's
    ],
)
def test_ahead_needs_figures_that_the_trainer_need_not_compute(settings: dict[str, Any], expected: list[str]) -> None:
    ahead = {"trainer.sampler": "application", "trainer.ahead": 1}
    config = load_config(PRESETS / "demo.toml", {**ahead, **settings})
    assert [fault.setting for fault in refusals._not_ahead(config)] == expected
    exact = load_config(PRESETS / "demo.toml", {"trainer.sampler": "application", **settings})
    assert [*refusals._not_ahead(exact)] == []
