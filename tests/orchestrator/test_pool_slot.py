"""The slot that a training asks the worker pool for."""

from __future__ import annotations

import pytest
import ray

from core.settings.trainers import EasyR1Settings, LocalSettings, TrainerSettings
from orchestrator.pool.slot import Demand, demand_of


@pytest.mark.parametrize(
    ("settings", "gpus", "demand"),
    [
        (LocalSettings(), 1.0, Demand("GPU", 2)),
        (LocalSettings(), 0.0, Demand("CPU", 2)),
        (LocalSettings(device="cpu"), 1.0, Demand("CPU", 2)),  # the demo's settings, on a machine with a GPU
        (EasyR1Settings(nodes=3, gpus_per_node=4), 1.0, Demand("GPU", 12)),
    ],
)
def test_a_training_asks_for_its_workers_gpus_or_cpus(
    monkeypatch: pytest.MonkeyPatch, settings: TrainerSettings, gpus: float, demand: Demand
) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": gpus})
    assert demand_of(settings, 2) == demand
