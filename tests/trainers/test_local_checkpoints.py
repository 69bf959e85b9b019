"""Step folders are complete or absent, are refused to another job, and do not change when they are written again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from local_tiny import tiny_job, tiny_model, tiny_tokenizer

from trainers.base import Rounds, TrainError, TrainJob, TrainQuestion
from trainers.folders import remove_unfinished
from trainers.local.checkpoints import load_optimiser, save_final, save_step
from trainers.local.state import State, fingerprint, newest_step, read_state, remove_old_steps
from trainers.local.update import make_optimiser


def learner(job: TrainJob) -> tuple[Any, torch.optim.Optimizer]:
    """A model after one step of AdamW, and its optimiser."""
    model = tiny_model()
    optimiser = make_optimiser(model, job.training)
    model(torch.tensor([[3, 4, 5]])).logits.square().mean().backward()
    optimiser.step()
    return model, optimiser


def save(job: TrainJob, step: int) -> torch.optim.Optimizer:
    model, optimiser = learner(job)
    save_step(job.work_dir, State(fingerprint(job), step, ({"step": 1.0},)), model, tiny_tokenizer(), optimiser)
    return optimiser


def test_a_loaded_optimiser_equals_the_saved_one_to_the_bit(tmp_path: Path) -> None:
    job = tiny_job(tmp_path)
    saved = save(job, 2)
    model, loaded = learner(job)
    folder = newest_step(job)
    assert folder is not None
    load_optimiser(folder, loaded)
    assert read_state(folder) == State(fingerprint(job), 2, ({"step": 1.0},))
    torch.testing.assert_close(loaded.state_dict(), saved.state_dict(), atol=0, rtol=0)
    assert len(loaded.state_dict()["state"]) == len(list(model.parameters()))


def test_a_half_written_step_is_never_resumed_from(tmp_path: Path) -> None:
    job = tiny_job(tmp_path)
    save(job, 2)
    half = job.work_dir / ".step_4-0123.part"
    half.mkdir()
    (half / "state.json").write_text("{")
    assert newest_step(job) == job.work_dir / "step_2"
    remove_unfinished(job.work_dir)
    assert [path.name for path in job.work_dir.iterdir()] == ["step_2"]


def test_a_step_that_is_saved_again_does_not_change(tmp_path: Path) -> None:
    job = tiny_job(tmp_path)
    save(job, 2)
    before = {file.name: file.read_bytes() for file in (job.work_dir / "step_2").iterdir()}
    save(job, 2)
    save_final(job.work_dir, 2, tiny_model())
    save_final(job.work_dir, 2, tiny_model())
    assert {file.name: file.read_bytes() for file in (job.work_dir / "step_2").iterdir()} == before
    assert sorted(path.name for path in job.work_dir.iterdir()) == ["final", "step_2"]


def test_steps_are_ordered_as_numbers_and_the_last_two_are_kept(tmp_path: Path) -> None:
    job = tiny_job(tmp_path)
    for step in (8, 9, 10):
        save(job, step)
    remove_old_steps(job.work_dir)
    assert newest_step(job) == job.work_dir / "step_10"
    assert sorted(path.name for path in job.work_dir.iterdir()) == ["step_10", "step_9"]


def test_another_job_s_folder_is_refused(tmp_path: Path) -> None:
    job = tiny_job(tmp_path)
    save(job, 2)
    others = [
        replace(job, run_seed=8),
        replace(job, key="t/2/train_solver"),
        replace(job, start=replace(job.start, sha256="1" * 64)),
        replace(job, training=job.training.model_copy(update={"learning_rate": 1e-5})),
        replace(job, questions=(TrainQuestion("t/1/000000", "a", "another label"),)),
        replace(job, rounds=Rounds(8)),
        replace(job, rounds=Rounds(8, job.start)),
    ]
    for other in others:
        with pytest.raises(TrainError, match="another job"):
            newest_step(other)
    spread = {"micro_batch": 1, "workers": 2, "checkpoint_every": 1}
    assert newest_step(replace(job, training=job.training.model_copy(update=spread))) is not None


def test_a_round_may_be_resumed_with_more_rounds_unless_its_learning_rates_would_change(tmp_path: Path) -> None:
    for schedule in ("constant", "cosine"):
        job = replace(tiny_job(tmp_path / schedule, schedule=schedule), rounds=Rounds(8))
        save(job, 2)
        longer = replace(job, rounds=Rounds(12))
        if schedule == "constant":
            assert newest_step(longer) == newest_step(job)
        else:
            with pytest.raises(TrainError, match="another job"):
                newest_step(longer)
