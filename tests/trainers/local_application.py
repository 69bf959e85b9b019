"""Jobs whose rollouts the fake of Serve samples, and comparing what they leave."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import torch
from local_loops import reward_tokens, run, train_until
from local_tiny import without_timings

from core.processes.faultpoints import FaultPoint, arm
from services.inference import access
from tests.fake_serve import FakeServe
from trainers.base import SamplerService, TrainJob
from trainers.local.ranks import Ranks
from trainers.local.state import read_state, step_folders

FILES = ("final/model.safetensors", "step_4/model.safetensors", "step_4/optimizer.safetensors")
TOKEN = "t" * 64


def by_application(job: TrainJob, serve: FakeServe, **changes: Any) -> TrainJob:
    service = SamplerService(
        url=f"{serve.url}/solver/v1",
        application="solver",
        dashboard_url=serve.url,
        run="t",
        dtype="float32",
        memory=None,
        logprobs_comparable=True,
        same_engine=True,
    )
    return replace(job, sampler=replace(service, **changes))


def metrics_of(job: TrainJob) -> list[dict[str, float]]:
    folder = step_folders(job.work_dir)[-1]
    return [
        {name: value for name, value in step.items() if name != "swap_bytes"}
        for step in without_timings(read_state(folder).metrics)
    ]


def assert_equal(job: TrainJob, expected: TrainJob) -> None:
    for file in FILES:
        assert (job.work_dir / file).read_bytes() == (expected.work_dir / file).read_bytes(), file
    assert metrics_of(job) == metrics_of(expected)


def run_until(job: TrainJob, point: FaultPoint, unit: str) -> None:
    def die(name: FaultPoint, its_unit: str) -> None:
        if (name, its_unit) == (point, unit):
            os._exit(9)

    torch.set_num_threads(1)
    os.environ[access.RAY_TOKEN] = TOKEN
    arm(die)
    run(job)


def train_on(ranks: Ranks, job: TrainJob) -> list[dict[str, float]]:
    os.environ[access.RAY_TOKEN] = TOKEN
    return train_until(job, reward_tokens, None, ranks)
