"""A training whose rollouts an application samples, which gets the weights after each step.

The applications are `tests/fake_serve.py`'s, with real engines; `test_sampler_live.py` has real ones.
"""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from local_application import TOKEN, assert_equal, by_application, metrics_of, run_until, train_on
from local_loops import PROCESSES, reward_sevens, reward_tokens, run
from local_tiny import objective, tiny_job
from safetensors.torch import load_file
from two_ranks import Pair

from core.logs import Subject
from core.methods.rent import Rent
from core.processes.faultpoints import FaultPoint
from core.settings.trainers import LocalSettings, Lora
from core.settings.training import Sampling
from services.inference import access
from services.inference.keys import own_keys
from tests.fake_serve import FakeServe
from trainers.base import TrainError
from trainers.local.order import Order
from trainers.local.state import read_state


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
