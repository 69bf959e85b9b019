"""Our corrections of EasyR1, on fakes of the corrected modules; test_easyr1_worker.py tests them on the real ones."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from easyr1_jobs import FAKE

from trainers.easyr1.corrections import KL, install, unknown

ROLLOUT, ACTOR = "workers/rollout/vllm_rollout_spmd.py", "workers/actor/dp_actor.py"


@pytest.fixture
def _corrected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the fake's modules importable as EasyR1's, and correct them when they are imported."""
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    install()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl"]:
        del sys.modules[name]


@pytest.mark.usefixtures("_corrected")
def test_requests_have_no_seed_and_each_group_of_ranks_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    rollout = import_module("verl.workers.rollout.vllm_rollout_spmd").vLLMRollout
    ranks = [rollout(seed=5, rank=rank, tensor_parallel_size=2) for rank in range(4)]
    assert all(rank.sampling_params.seed is None for rank in ranks)
    assert [rank.generate_sequences("prompts") for rank in ranks] == ["prompts"] * 4
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]
    ranks[0].generate_sequences("more")
    assert len(seeds) == 4  # it is seeded only once: EasyR1 itself keeps the generator's state from step to step
    rollout(seed=6, tensor_parallel_size=2).generate_sequences("prompts")
    assert seeds[4] not in seeds[:4]


@pytest.mark.usefixtures("_corrected")
def test_the_corrected_kl_is_the_mean_over_all_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = import_module("verl.workers.actor.dp_actor").DataParallelPPOActor()
    zero = torch.zeros(1, 4)
    batches = [
        (zero + 1, zero, torch.tensor([[1, 1, 1, 0]])),
        (zero + 5, zero, torch.tensor([[1, 0, 0, 0]])),
    ]
    for _ in range(2):  # the second update does not count the first one's tokens
        metrics = actor.update_policy(batches)
        assert metrics["actor/kl_loss"] == 5
        assert metrics[KL] == pytest.approx((3 * 1 + 1 * 5) / 4)
    assert KL not in actor.update_policy([])


@pytest.mark.parametrize(
    ("file", "before", "after", "reason"),
    [
        (ROLLOUT, None, None, "there is no .*vllm_rollout_spmd.py"),
        (ROLLOUT, "class vLLMRollout", "class Other", "has no class vLLMRollout"),
        (ROLLOUT, "sampling_params", "parameters", "vLLMRollout.__init__ in .* has no sampling_params"),
        (ACTOR, "average_loss", "mean", "DataParallelPPOActor.update_policy in .* has no average_loss"),
    ],
)
def test_an_unknown_version_of_easyr1_is_recognised(
    tmp_path: Path, file: str, before: str | None, after: str, reason: str
) -> None:
    source = tmp_path / "EasyR1"
    shutil.copytree(FAKE, source)
    assert unknown(source) is None
    path = source / "verl" / file
    if before is None:
        path.unlink()
    else:
        path.write_text(path.read_text().replace(before, after))
    why = unknown(source)
    assert why is not None
    assert re.search(reason, why)


def test_the_pinned_easyr1_is_known() -> None:
    if (source := os.environ.get("COEVO_EASYR1_SOURCE")) is None:
        pytest.skip("EasyR1: COEVO_EASYR1_SOURCE names no checkout of it")
    assert unknown(Path(source)) is None
