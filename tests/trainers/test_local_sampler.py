"""A training whose rollouts an application samples, which gets the weights after each step.

The applications are `tests/fake_serve.py`'s, with real engines; `test_sampler_live.py` has real ones.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import PROCESSES, reward_sevens, reward_tokens, run, train_until
from local_tiny import objective, tiny_job, without_timings
from safetensors.torch import load_file
from two_ranks import Pair

from core.logs import Subject
from core.methods.rent import Rent
from core.processes.faultpoints import FaultPoint, arm
from core.settings.trainers import LocalSettings, Lora
from core.settings.training import Sampling
from core.types import Scored
from services.inference import access
from services.inference.client import InferenceClient
from services.inference.keys import own_keys
from tests.fake_serve import FakeServe, fake_serve
from trainers.base import SamplerService, TrainError, TrainJob
from trainers.local.order import Order
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions
from trainers.local.state import fingerprint, read_state, remove_old_steps, step_folders
from trainers.rewards import Rewarded
from trainers.schedule import rollouts_at

FILES = ("final/model.safetensors", "step_4/model.safetensors", "step_4/optimizer.safetensors")
TOKEN = "t" * 64


@pytest.fixture
def serve(start: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServe]:
    monkeypatch.setenv(access.RAY_TOKEN, TOKEN)
    with fake_serve(start) as fake:
        yield fake


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


def test_the_checkpoint_is_that_of_the_embedded_sampler_to_the_bit(
    tmp_path: Path, start: Path, serve: FakeServe
) -> None:
    embedded = tiny_job(tmp_path / "embedded", start)
    run(embedded)
    job = by_application(tiny_job(tmp_path / "application", start), serve)
    run(job)
    assert_equal(job, embedded)
    assert {application for application, _ in serve.swapped} == {"solver"}
    ids = [served.checkpoint for _, served in serve.swapped]
    assert [name.rpartition("-")[0] for name in ids] == [f"t/t/1/train_solver@{done}" for done in range(4)]
    assert not any(served.published for _, served in serve.swapped)
    assert [step["swap_bytes"] for step in read_state(job.work_dir / "step_4").metrics] == [
        (start / "model.safetensors").stat().st_size
    ] * 4
    assert {*serve.tokens} == {f"Bearer {TOKEN}"}


def test_the_two_newest_folders_stay_while_it_trains_and_none_afterwards(
    tmp_path: Path, start: Path, serve: FakeServe
) -> None:
    job, seen = by_application(tiny_job(tmp_path, start), serve), list[list[str]]()
    folder = job.work_dir / "weights"
    run(job, lambda _: seen.append(sorted(path.name.partition("-")[0] for path in folder.iterdir())))
    assert seen == [["0"], ["0", "1"], ["1", "2"], ["2", "3"]]
    assert not folder.exists()


def test_on_one_machine_the_weights_are_in_its_memory(tmp_path: Path, start: Path, serve: FakeServe) -> None:
    memory = tmp_path / "memory"
    memory.mkdir(mode=0o700)
    job = by_application(tiny_job(tmp_path, start, steps=1, checkpoint_every=1), serve, memory=memory)
    run(job)
    [(_, served)] = serve.swapped
    assert served.folder.is_relative_to(memory)
    assert list(memory.iterdir()) == []
    memory.chmod(stat.S_IRWXU | stat.S_IRGRP)
    with pytest.raises(TrainError, match="only user"):
        run(replace(job, work_dir=tmp_path / "other"))
    memory.rmdir()  # another machine has no such folder
    run(replace(job, work_dir=tmp_path / "third"))
    assert serve.swapped[-1][1].folder.is_relative_to(tmp_path / "third" / "weights")


def test_another_format_s_other_files_are_those_of_the_start(tmp_path: Path, start: Path, serve: FakeServe) -> None:
    job = by_application(tiny_job(tmp_path, start, steps=2), serve, dtype="bfloat16")
    seen = list[dict[str, torch.Tensor]]()

    def look(_: object) -> None:
        [newest] = (path for path in (job.work_dir / "weights").iterdir() if path.name.startswith(f"{len(seen)}-"))
        seen.append(load_file(newest / "model.safetensors"))
        assert {path.name for path in newest.iterdir()} == {path.name for path in start.iterdir()}
        assert (newest / "tokenizer.json").resolve() == (start / "tokenizer.json").resolve()

    run(job, look)
    assert {tensor.dtype for tensor in seen[1].values()} == {torch.bfloat16}
    first = load_file(start / "model.safetensors")
    assert seen[0].keys() == first.keys()  # a tied weight is written once
    assert all(torch.equal(seen[0][name], tensor.bfloat16()) for name, tensor in first.items())


def test_a_refused_swap_names_the_application(tmp_path: Path, start: Path, serve: FakeServe) -> None:
    serve.refusal = "A replica failed: CanaryFailed: not finite"
    job = by_application(tiny_job(tmp_path, start), serve)
    with pytest.raises(TrainError, match=r"trainer\.sampler: solver did not take t/t/1/train_solver@0-.*CanaryFailed"):
        run(job)
    with pytest.raises(TrainError, match=r"trainer\.sampler: nobody: expected a running application"):
        run(by_application(tiny_job(tmp_path / "other", start), serve, application="nobody"))


def test_the_keys_of_ray_and_the_applications_go_to_the_workers_and_into_no_text(
    tmp_path: Path, start: Path, serve: FakeServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(access.KEY, "k" * 64)
    keys = own_keys()
    assert keys == {access.RAY_TOKEN: TOKEN, access.KEY: "k" * 64}
    job = by_application(tiny_job(tmp_path, start), serve)
    assert not any(
        key in repr(Order(job, LocalSettings(), keys, Subject("t", 1, "train_solver"))) for key in keys.values()
    )
    monkeypatch.delenv(access.KEY)
    monkeypatch.delenv(access.RAY_TOKEN)
    assert own_keys() == {}  # as on a Ray without a token


def run_until(job: TrainJob, point: FaultPoint, unit: str) -> None:
    def die(name: FaultPoint, its_unit: str) -> None:
        if (name, its_unit) == (point, unit):
            os._exit(9)

    torch.set_num_threads(1)
    os.environ[access.RAY_TOKEN] = TOKEN
    arm(die)
    run(job)


@pytest.mark.parametrize("point", ["weights written", "weights swapped", "step ended"])
def test_killed_at_any_point_and_resumed_it_ends_with_the_same_bits(
    tmp_path: Path, start: Path, serve: FakeServe, point: FaultPoint
) -> None:
    whole = tiny_job(tmp_path / "whole", start)
    run(whole)
    killed = by_application(tiny_job(tmp_path / "killed", start), serve)
    unit = f"{killed.key}/3"  # of step 4, which is done again as step 3 is; or the end of step 3
    worker = PROCESSES.Process(target=run_until, args=(killed, point, unit))
    worker.start()
    worker.join()
    assert worker.exitcode == 9
    assert list((killed.work_dir / "weights").iterdir())
    before = len(serve.swapped)
    run(killed)
    assert_equal(killed, whole)
    again = [served.checkpoint.partition("@")[2].partition("-")[0] for _, served in serve.swapped[before:]]
    assert again == ["2", "3"]
    assert not (killed.work_dir / "weights").exists()


def train_on(ranks: Ranks, job: TrainJob) -> list[dict[str, float]]:
    os.environ[access.RAY_TOKEN] = TOKEN
    return train_until(job, reward_tokens, None, ranks)


@pytest.mark.parametrize("sharded", [False, True])
def test_two_workers_ask_the_application_for_their_shares(
    tmp_path: Path, start: Path, serve: FakeServe, pair: Pair, sharded: bool
) -> None:
    embedded = tiny_job(tmp_path / "embedded", start, workers=2, sharded=sharded)
    job = by_application(replace(embedded, work_dir=tmp_path / "job"), serve)
    for each in (embedded, job):
        pair(train_on, each)
    assert_equal(job, embedded)
    assert len(serve.swapped) == 4


@pytest.mark.parametrize(("comparable", "kl_in"), [(True, "loss"), (False, "loss"), (False, "reward")], ids=str)
def test_log_probabilities_of_another_distribution_are_replaced_by_the_trainer_s_own(
    tmp_path: Path, start: Path, serve: FakeServe, comparable: bool, kl_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application's are spoilt here, as vLLM's are at a temperature other than 1."""
    changes = {"reward": objective("sequence", kl_in=kl_in), "sampling": Sampling(temperature=0.7, max_tokens=8)}
    embedded = tiny_job(tmp_path / "embedded", start, steps=2, **changes)
    run(embedded)
    job = by_application(replace(embedded, work_dir=tmp_path / "job"), serve, logprobs_comparable=comparable)
    chats = serve.chats

    def spoilt(*arguments: Any) -> Any:
        replies = chats(*arguments)
        for choice in (choice for reply in replies or () for choice in reply["choices"]):
            choice["token_logprobs"] = [3 * logprob - 1 for logprob in choice["token_logprobs"]]
            choice["mean_entropy"] = choice["entropy_error"] = None
        return replies

    monkeypatch.setattr(serve, "chats", spoilt)
    if comparable:
        with pytest.raises(TrainError, match="differ by"):
            run(job)
        return
    run(job)
    expected, got = (load_file(each.work_dir / "final/model.safetensors") for each in (embedded, job))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-3)
    for before, after in zip(metrics_of(embedded), metrics_of(job), strict=True):
        assert not any(name.startswith("sampler_gap") for name in after)
        shared = {name: value for name, value in before.items() if not name.startswith("sampler_gap")}
        assert after == pytest.approx(shared, abs=1e-4)


def test_a_method_that_rewards_entropies_gets_exact_ones(
    tmp_path: Path, start: Path, serve: FakeServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's are estimates."""
    embedded, seen = tiny_job(tmp_path / "embedded", start, steps=1, reward=Rent()), list[list[float]]()

    def look(step: int, completions: Any) -> Any:
        seen.append([completion.mean_entropy for group in completions for completion in group])
        return reward_sevens(step, completions)

    run(embedded, reward=look)
    chats = serve.chats

    def rough(*arguments: Any) -> Any:
        replies = chats(*arguments)
        for choice in (choice for reply in replies or () for choice in reply["choices"]):
            choice["mean_entropy"], choice["entropy_error"] = choice["mean_entropy"] + 0.05, 0.06
        return replies

    monkeypatch.setattr(serve, "chats", rough)
    run(by_application(replace(embedded, work_dir=tmp_path / "job"), serve), reward=look)
    assert seen[1] == pytest.approx(seen[0], abs=1e-5)
    other = tiny_job(tmp_path / "other", start, steps=1)
    run(by_application(other, serve), reward=look)
    assert seen[2] != pytest.approx(seen[0], abs=1e-3)


def test_rollouts_of_another_engine_are_weighted_by_their_importance(
    tmp_path: Path, start: Path, serve: FakeServe
) -> None:
    """The fake is the trainer's engine in bfloat16."""
    changes = {"same_engine": False, "dtype": "bfloat16"}
    for cap, name in ((2.0, "weighted"), (None, "not")):
        job = by_application(tiny_job(tmp_path / name, start, steps=2), serve, **changes)
        run(job, settings=LocalSettings(importance_cap=cap))
        for step in metrics_of(job):
            assert 0 < step["sampler_gap"] < 0.05
            assert (step.get("importance_sample_share"), step.get("importance_cut_share")) == (
                (pytest.approx(1.0, abs=0.01), 0.0) if cap else (None, None)
            )


def test_with_lora_the_application_gets_the_merged_weights(tmp_path: Path, start: Path, serve: FakeServe) -> None:
    job = by_application(tiny_job(tmp_path, start), serve)
    run(job, reward=reward_tokens, settings=LocalSettings(lora=Lora(rank=2, alpha=8)))
    first, *_, last = metrics_of(job)
    assert last["sampler_gap"] < 1e-5
    assert first["kl"] == 0 < last["kl"]


def two_policies(job: TrainJob, serve: FakeServe, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs the job; returns the number of optimiser steps that the policy had done which sampled each step."""
    asked, ask = dict[int, int](), InferenceClient.generate

    def observed(client: InferenceClient, prompts: Any, checkpoint: str) -> Any:
        step = next(step for step in range(1, 5) if rollouts_at(job, step)[0] in prompts)
        asked[step] = int(checkpoint.partition("@")[2].partition("-")[0])
        return ask(client, prompts, checkpoint)

    monkeypatch.setattr(InferenceClient, "generate", observed)
    run(job)
    monkeypatch.undo()
    return [asked[step] for step in sorted(asked)]


def test_one_step_ahead_the_rollouts_are_by_the_policy_before_the_last_step(
    tmp_path: Path, start: Path, serve: FakeServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, ahead = (by_application(tiny_job(tmp_path / str(n), start), serve, ahead=n) for n in (0, 1))
    monkeypatch.setenv(access.RAY_TOKEN, TOKEN)
    assert two_policies(exact, serve, monkeypatch) == [0, 1, 2, 3]
    monkeypatch.setenv(access.RAY_TOKEN, TOKEN)
    assert two_policies(ahead, serve, monkeypatch) == [0, 0, 1, 2]
    assert [step["staleness"] for step in metrics_of(ahead)] == [0, 1, 1, 1]
    assert "staleness" not in metrics_of(exact)[0]
    gaps = [step["sampler_gap"] for step in metrics_of(ahead)]
    assert gaps[0] < 1e-5 < min(gaps[1:])
    first, second = (metrics_of(job)[0] for job in (exact, ahead))
    assert second == {**first, "staleness": 0}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("point", ["weights written", "weights swapped", "step ended"])
def test_one_step_ahead_a_killed_training_ends_with_the_same_bits(
    tmp_path: Path, start: Path, serve: FakeServe, point: FaultPoint, every: int
) -> None:
    whole, killed = (
        by_application(tiny_job(tmp_path / name, start, checkpoint_every=every), serve, ahead=1)
        for name in ("whole", "killed")
    )
    run(whole)
    worker = PROCESSES.Process(
        target=run_until, args=(killed, point, f"{killed.key}/{3 if point == 'step ended' else 2}")
    )
    worker.start()
    worker.join()
    assert worker.exitcode == 9
    run(killed)
    assert_equal(killed, whole)


@pytest.mark.parametrize("sharded", [False, True])
def test_one_step_ahead_two_workers_share_the_asking(
    tmp_path: Path, start: Path, serve: FakeServe, pair: Pair, sharded: bool
) -> None:
    jobs = [
        by_application(tiny_job(tmp_path / name, start, workers=2, sharded=sharded, checkpoint_every=1), serve, ahead=1)
        for name in ("first", "second")
    ]
    for job in jobs:
        pair(train_on, job)
    assert_equal(*jobs)
    assert [step["staleness"] for step in metrics_of(jobs[0])] == [0, 1, 1, 1]


def test_what_was_sampled_ahead_of_removed_steps_is_removed_with_them(
    tmp_path: Path, start: Path, serve: FakeServe
) -> None:
    job = by_application(tiny_job(tmp_path, start, checkpoint_every=1), serve, ahead=1)
    run(job)
    assert sorted(path.name for path in (job.work_dir / "ahead").iterdir()) == ["2.json", "3.json", "4.json"]
    remove_old_steps(job.work_dir)
    assert [path.name for path in (job.work_dir / "ahead").iterdir()] == ["4.json"]
    assert fingerprint(job) != fingerprint(replace(job, sampler=None))


@pytest.mark.parametrize("stopped", [2, 3])
def test_one_step_ahead_a_resumed_training_refills_from_the_policy_as_it_is(
    tmp_path: Path, start: Path, serve: FakeServe, stopped: int
) -> None:
    """The last step has no next one to sample, and asks for further prompts all the same."""
    changes: dict[str, Any] = {"refill": 3, "rollouts_per_prompt": 2, "checkpoint_every": 1}
    whole, resumed = (
        by_application(tiny_job(tmp_path / name, start, **changes), serve, ahead=1) for name in ("whole", "resumed")
    )
    run(whole, reward=reward_evenly)
    train_until(resumed, reward_evenly, stopped)
    before = len(serve.swapped)
    run(resumed, reward=reward_evenly)
    assert_equal(resumed, whole)
    assert metrics_of(whole)[-1]["refilled"] == 3
    again = [served.checkpoint.partition("@")[2].partition("-")[0] for _, served in serve.swapped[before:]]
    assert again == [str(done) for done in range(stopped, 4)]


def reward_evenly(step: int, completions: Completions) -> Rewarded:
    """No group but the first teaches anything."""
    first, *others = reward_tokens(step, completions).groups
    return Rewarded([first, *(Scored(None, np.ones(len(scored.rewards))) for scored in others)], {})
