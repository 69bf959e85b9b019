"""A training that is killed, stopped or cut into rounds ends with the same bits as one that goes through, and each of
its steps is AdamW's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from local_loops import PROCESSES, WARMED, run
from local_tiny import tiny_job, without_timings
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from core.settings.training import Training
from trainers.base import Rounds, TrainJob
from trainers.local import loop
from trainers.local.state import Metrics, newest_step, read_state
from trainers.local.update import make_optimiser


def run_and_die(job: TrainJob, last_step: int) -> None:
    """Run a worker that dies after step `last_step` and before it writes the step's checkpoint."""

    def report(metrics: Metrics) -> None:
        if metrics["step"] == last_step:
            os._exit(9)

    torch.set_num_threads(1)
    run(job, report)


def run_killed(job: TrainJob, last_step: int) -> None:
    """Run the job in a worker of its own that dies after step `last_step`."""
    worker = PROCESSES.Process(target=run_and_die, args=(job, last_step))
    worker.start()
    worker.join()
    assert worker.exitcode == 9


def test_a_killed_and_resumed_job_ends_with_the_same_bits(tmp_path: Path, start: Path) -> None:
    whole, killed = (tiny_job(tmp_path / name, start, **WARMED) for name in ("whole", "killed"))
    run(whole)

    run_killed(killed, 3)
    assert not (killed.work_dir / "final").exists()

    reported_later: list[Metrics] = []
    run(killed, reported_later.append)
    assert [step["step"] for step in reported_later] == [3, 4]
    for file in ("final/model.safetensors", "step_4/model.safetensors", "step_4/optimizer.safetensors"):
        assert (killed.work_dir / file).read_bytes() == (whole.work_dir / file).read_bytes(), file
    assert without_timings(read_state(killed.work_dir / "step_4").metrics) == without_timings(
        read_state(whole.work_dir / "step_4").metrics
    )


def test_each_step_is_adamw_s_at_the_learning_rate_of_the_schedule(
    tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's AdamW gets the same gradients and makes the same weights, to the bit."""
    gradients: list[list[Tensor]] = []
    job = tiny_job(tmp_path, start, learning_rate=1e-2, betas=(0.8, 0.95), weight_decay=0.1, **WARMED)

    def observed(model: Any, training: Training) -> torch.optim.Optimizer:
        optimiser = make_optimiser(model, training)
        optimiser.register_step_pre_hook(lambda *_: gradients.append([p.grad.clone() for p in model.parameters()]))
        return optimiser

    monkeypatch.setattr(loop, "make_optimiser", observed)
    metrics: list[Metrics] = []
    run(job, metrics.append)
    assert [step["learning_rate"] for step in metrics] == pytest.approx([0, 1e-2, 7.5e-3, 2.5e-3])

    model = AutoModelForCausalLM.from_pretrained(start)
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.8, 0.95), weight_decay=0.1, fused=True)
    for step, of_step in zip(metrics, gradients, strict=True):
        optimiser.param_groups[0]["lr"] = step["learning_rate"]
        for parameter, gradient in zip(model.parameters(), of_step, strict=True):
            parameter.grad = gradient
        optimiser.step()
    trained = AutoModelForCausalLM.from_pretrained(job.work_dir / "final")
    torch.testing.assert_close(trained.state_dict(), model.state_dict(), atol=0, rtol=0)


def test_the_first_step_of_a_warm_up_changes_moments_and_no_weights(tmp_path: Path, start: Path) -> None:
    job = tiny_job(tmp_path, start, steps=1, warmup_steps=2)
    run(job)
    assert (job.work_dir / "final/model.safetensors").read_bytes() == (start / "model.safetensors").read_bytes()
    moments = load_file(job.work_dir / "step_1/optimizer.safetensors")
    assert moments["0.step"] == 1
    assert moments["0.exp_avg"].abs().max() > 0


def second_round(first: TrainJob, work: Path) -> TrainJob:
    """The round of two steps that goes on from the result of `first`, in the folder `work`."""
    final, optimiser = (replace(first.start, path=str(first.work_dir / name)) for name in ("final", "optimiser"))
    rounds = Rounds(4, optimiser)
    return replace(first, start=final, reference=first.start, steps_before=2, rounds=rounds, work_dir=work)


def test_two_continued_rounds_equal_one_training_to_the_bit(tmp_path: Path, start: Path) -> None:
    whole, first = (tiny_job(tmp_path / str(steps), start, steps=steps, **WARMED) for steps in (4, 2))
    jobs = [replace(whole, rounds=Rounds(4)), replace(first, rounds=Rounds(4))]
    jobs += [second_round(jobs[1], tmp_path / "second"), second_round(jobs[1], tmp_path / "killed")]
    jobs[3] = replace(jobs[3], training=first.training.model_copy(update={"checkpoint_every": 1}))
    for job in jobs[:3]:
        run(job)
    run_killed(jobs[3], 2)
    assert [path.name for path in jobs[3].work_dir.iterdir()] == ["step_1"]
    run(jobs[3])

    for job in jobs[2:]:
        for file in ("final/model.safetensors", "optimiser/optimizer.safetensors"):
            assert (job.work_dir / file).read_bytes() == (jobs[0].work_dir / file).read_bytes(), file
    one_training, second = (
        without_timings(read_state(folder).metrics)
        for folder in (jobs[0].work_dir / "step_4", jobs[2].work_dir / "step_2")
    )
    assert [{**step, "step": step["step"] + 2} for step in second] == one_training[2:]


def test_a_fresh_round_begins_with_no_moments_and_with_its_own_schedule(tmp_path: Path, start: Path) -> None:
    first = tiny_job(tmp_path, start, steps=2, **WARMED)
    run(replace(first, rounds=Rounds(4)))
    fresh, continued = (second_round(first, tmp_path / name) for name in ("fresh", "continued"))
    rates: dict[Path, list[float]] = {}
    for job in (replace(fresh, rounds=None), continued):
        metrics: list[Metrics] = []
        run(job, metrics.append)
        rates[job.work_dir] = [step["learning_rate"] for step in metrics]
    assert rates == {fresh.work_dir: [0, 1e-2], continued.work_dir: pytest.approx([7.5e-3, 2.5e-3])}
    steps = [load_file(job.work_dir / "step_2/optimizer.safetensors")["0.step"].item() for job in (fresh, continued)]
    assert steps == [2, 4]
    assert not (fresh.work_dir / "optimiser").exists()


def test_the_result_has_changed_weights_and_no_optimiser(tmp_path: Path, start: Path) -> None:
    job = tiny_job(tmp_path, start, steps=3, checkpoint_every=1)
    run(job)
    final = job.work_dir / "final"
    assert (final / "model.safetensors").read_bytes() != (start / "model.safetensors").read_bytes()
    assert {file.name for file in final.iterdir()} == {file.name for file in start.iterdir()}
    assert sorted(path.name for path in job.work_dir.iterdir()) == ["final", "step_1", "step_2", "step_3"]


def test_a_stopped_job_goes_on_when_it_is_run_again(tmp_path: Path, start: Path) -> None:
    job, reported = tiny_job(tmp_path, start, checkpoint_every=1), []
    run(job, reported.append, stopped=lambda: len(reported) == 2)
    assert [path.name for path in [newest_step(job)] if path] == ["step_2"]
    run(job, reported.append)
    assert [step["step"] for step in reported] == [1, 2, 3, 4]
