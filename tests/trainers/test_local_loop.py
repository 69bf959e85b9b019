"""The training loop with one worker: it learns, and a killed job ends with the same result as one that was not
killed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_tiny import VOCABULARY, answering_model, save_tiny, tiny_job, tiny_tokenizer, without_timings
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, GraniteConfig, GraniteForCausalLM

from core.methods.poly_epo import PassAtN
from core.methods.srt import Srt
from core.methods.ttrl import Ttrl
from core.settings.training import Sampling, Training
from core.statistics.guard import Guard
from core.types import Scored
from trainers.base import Rounds, SolverJob, TrainError, TrainJob
from trainers.local import loop
from trainers.local.checkpoints import save_step
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions, Reward, Rewarded
from trainers.local.state import Metrics, State, fingerprint, newest_step, read_state
from trainers.local.update import make_optimiser


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def job_in(work: Path, start: Path, **training: Any) -> TrainJob:
    job = tiny_job(work, **training)
    return replace(job, start=replace(job.start, path=str(start)))


def reward_sevens(step: int, completions: Completions) -> Rewarded:
    """A reward of 1 for an answer of 7."""
    groups = [Scored("7", np.array([float("{7}" in completion.text) for completion in group])) for group in completions]
    return Rewarded(groups, {"unparsed_share": 0.0})


WARMED: dict[str, Any] = {"schedule": "cosine", "warmup_steps": 1}  # the shares of four steps: 0, 1, 3/4, 1/4


def run(
    job: TrainJob,
    report: Callable[[Metrics], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    train(job, reward_sevens, ranks=Ranks(), device="cpu", report=report, stopped=stopped)


def run_and_die(job: TrainJob, last_step: int) -> None:
    """Run a worker that dies after step `last_step` and before it writes the step's checkpoint."""

    def report(metrics: Metrics) -> None:
        if metrics["step"] == last_step:
            os._exit(9)

    torch.set_num_threads(1)
    run(job, report)


def test_every_forward_pass_shows_that_the_worker_computes(tmp_path: Path, start: Path) -> None:
    """A training of which nothing is seen for long is killed, and a single step may take hours."""
    job, beats = job_in(tmp_path, start, steps=1), list[str]()

    def reward(step: int, completions: Completions) -> Rewarded:
        beats.append("reward")
        return reward_sevens(step, completions)

    def beat(*_: object) -> None:
        beats.append("pass")

    train(job, reward, ranks=Ranks(), device="cpu", report=lambda _: None, stopped=lambda: False, beat=beat)
    sampling, updating = beats.index("reward"), len(beats) - beats.index("reward") - 1
    assert sampling >= 3  # a completion has at least \\boxed{, a digit and }
    rows, micro_batch = job.training.prompts_per_step * job.rollouts, job.training.micro_batch
    assert updating == 2 * -(-rows // micro_batch)  # of the policy and of the reference


def test_the_loop_learns_which_digit_is_rewarded(tmp_path: Path, start: Path) -> None:
    job = job_in(
        tmp_path,
        start,
        steps=24,
        prompts_per_step=4,
        rollouts_per_prompt=8,
        learning_rate=5e-3,
        sampling=Sampling(top_p=1.0, max_tokens=4),
    )
    metrics: list[Metrics] = []
    run(job, metrics.append)

    rewards = [step["reward_mean"] for step in metrics]
    assert rewards[0] < 0.3
    assert sum(rewards[-3:]) / 3 > 0.7
    assert metrics[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert metrics[-1]["kl"] > 0.01
    assert metrics[-1]["entropy"] < metrics[0]["entropy"]
    assert [step["step"] for step in metrics] == list(range(1, 25))
    assert all(step["sampler_gap"] < 1e-4 for step in metrics)


def reward_members(members: slice, learn: bool = True) -> Reward:
    """A reward of 1 for the rollouts of every group at `members`, whatever their texts are."""

    def reward(step: int, completions: Completions) -> Rewarded:
        groups = []
        for group in completions:
            rewards = np.zeros(len(group))
            rewards[members] = 1
            groups.append(Scored("7", rewards, learn))
        return Rewarded(groups, {})

    return reward


def train_one_step(job: TrainJob, start: Path, reward: Reward) -> tuple[bool, Metrics]:
    """Train; returns whether the weights changed, and the figures of the first step."""
    metrics: list[Metrics] = []
    train(job, reward, ranks=Ranks(), device="cpu", report=metrics.append, stopped=lambda: False)
    after, before = ((folder / "model.safetensors").read_bytes() for folder in (job.work_dir / "final", start))
    return after != before, metrics[0]


def test_only_the_trained_share_is_learned_from(tmp_path: Path, start: Path) -> None:
    """Of four rollouts the first two are trained on: the rewards of the others do not change the weights."""
    settings = {"steps": 1, "weight_decay": 0.0, "reward": Ttrl(kl_coefficient=0.0)}
    first, second = (job_in(tmp_path / name, start, **settings) for name in ("first", "second"))
    assert train_one_step(first, start, reward_members(slice(0, 1)))[0]
    changed, metrics = train_one_step(second, start, reward_members(slice(2, 3)))
    assert not changed
    assert (metrics["zero_advantage_share"], metrics["reward_mean"]) == (1, 0.25)


def test_a_dropped_prompt_does_not_change_the_weights(tmp_path: Path, start: Path) -> None:
    job = job_in(tmp_path, start, steps=1, reward=Ttrl(kl_coefficient=1.0))
    changed, metrics = train_one_step(job, start, reward_members(slice(0, 1), learn=False))
    assert not changed
    assert metrics["dropped_share"] == 1
    assert "kl" not in metrics


def test_a_set_objective_changes_the_weights(tmp_path: Path, start: Path) -> None:
    settings = {"steps": 1, "weight_decay": 0.0, "reward": PassAtN(set_size=2)}
    one_right, all_right = (job_in(tmp_path / name, start, **settings) for name in ("some", "all"))
    assert train_one_step(one_right, start, reward_members(slice(0, 1)))[0]
    assert not train_one_step(all_right, start, reward_members(slice(0, 4)))[0]  # every set has a right rollout


def save_step_away_from_reference(job: TrainJob) -> Path:
    """Save a first step of `job` with other weights than its start, and return the step's folder: the job resumes with
    these weights and has its start as the reference."""
    model = answering_model(steps=20)
    save_step(
        job.work_dir, State(fingerprint(job), 1, ()), model, tiny_tokenizer(), make_optimiser(model, job.training)
    )
    return job.work_dir / "step_1"


@pytest.mark.parametrize("coefficient", [0.0, 0.5])
def test_a_kl_in_the_reward_changes_the_weights_where_all_other_rewards_are_equal(
    tmp_path: Path, start: Path, coefficient: float
) -> None:
    """test_grpo_loss.py tests the size of this KL."""
    job = job_in(tmp_path, start, steps=2, weight_decay=0.0, reward=Srt(kl_coefficient=coefficient))
    changed, metrics = train_one_step(job, save_step_away_from_reference(job), reward_members(slice(0, 0)))
    assert metrics["kl"] > 0.01
    assert changed == (coefficient > 0)
    assert metrics["zero_advantage_share"] == (0 if coefficient else 1)


def test_a_kl_in_the_reward_reaches_the_groups_after_a_dropped_one(tmp_path: Path, start: Path) -> None:
    job = job_in(tmp_path, start, steps=2, weight_decay=0.0, reward=Srt(kl_coefficient=0.5))

    def all_but_the_first(step: int, completions: Completions) -> Rewarded:
        return Rewarded([Scored("7", np.zeros(len(group)), i > 0) for i, group in enumerate(completions)], {})

    changed, metrics = train_one_step(job, save_step_away_from_reference(job), all_but_the_first)
    assert changed
    assert metrics["dropped_share"] == pytest.approx(1 / 3)
    assert metrics["zero_advantage_share"] == 0


def reward_with_label_shares(shares: list[float]) -> Reward:
    """A reward with these `same_label_share`s, one for each step."""

    def reward(step: int, completions: Completions) -> Rewarded:
        return Rewarded(reward_sevens(step, completions).groups, {"same_label_share": shares[step - 1]})

    return reward


SHARES = [0.1, 0.2, 0.9, 0.9, 0.9, 0.9]


def test_the_guard_ends_a_job_at_the_step_of_its_alarm(tmp_path: Path, start: Path) -> None:
    guard = Guard(window=1, one_answer="stop", one_answer_share=0.5)
    job = replace(job_in(tmp_path, start, steps=6), guard=guard)
    reported: list[Metrics] = []

    def train_on(job: SolverJob) -> None:
        reward = reward_with_label_shares(SHARES)
        train(job, reward, ranks=Ranks(), device="cpu", report=reported.append, stopped=lambda: False)

    train_on(job)
    assert [step["step"] for step in reported] == [1, 2, 3]
    last = newest_step(job)
    assert last is not None
    assert last.name == "step_3"
    assert (job.work_dir / "final/model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()

    train_on(job)
    assert len(reported) == 3  # the job does not go on when it is resumed

    warned = replace(job_in(tmp_path / "warned", start, steps=6), guard=guard.model_copy(update={"one_answer": "warn"}))
    train_on(warned)
    assert [step["step"] for step in reported[3:]] == [1, 2, 3, 4, 5, 6]


def test_the_reference_can_be_another_model_than_the_start(tmp_path: Path, start: Path) -> None:
    other = save_tiny(tmp_path / "other", answering_model(steps=20))
    job = job_in(tmp_path, start, steps=1)
    _, own = train_one_step(job, start, reward_members(slice(0, 1)))
    apart = replace(job, work_dir=tmp_path / "apart", reference=replace(job.start, path=str(other)))
    _, far = train_one_step(apart, start, reward_members(slice(0, 1)))
    assert own["kl"] == pytest.approx(0, abs=1e-6)
    assert far["kl"] > 0.01


def test_a_killed_and_resumed_job_ends_with_the_same_bits(tmp_path: Path, start: Path) -> None:
    whole, killed = (job_in(tmp_path / name, start, updates_per_step=2, **WARMED) for name in ("whole", "killed"))
    run(whole)

    worker = multiprocessing.get_context("spawn").Process(target=run_and_die, args=(killed, 3))
    worker.start()
    worker.join()
    assert worker.exitcode == 9
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
    job = job_in(tmp_path, start, learning_rate=1e-2, betas=(0.8, 0.95), weight_decay=0.1, **WARMED)

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
    job = job_in(tmp_path, start, steps=1, warmup_steps=2)
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
    whole, first = (job_in(tmp_path / str(steps), start, steps=steps, **WARMED) for steps in (4, 2))
    jobs = [replace(whole, rounds=Rounds(4)), replace(first, rounds=Rounds(4))]
    jobs += [second_round(jobs[1], tmp_path / "second"), second_round(jobs[1], tmp_path / "killed")]
    jobs[3] = replace(jobs[3], training=first.training.model_copy(update={"checkpoint_every": 1}))
    for job in jobs[:3]:
        run(job)
    worker = multiprocessing.get_context("spawn").Process(target=run_and_die, args=(jobs[3], 2))
    worker.start()
    worker.join()
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
    first = job_in(tmp_path, start, steps=2, **WARMED)
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
    job = job_in(tmp_path, start, steps=3, checkpoint_every=1)
    run(job)
    final = job.work_dir / "final"
    assert (final / "model.safetensors").read_bytes() != (start / "model.safetensors").read_bytes()
    assert {file.name for file in final.iterdir()} == {file.name for file in start.iterdir()}
    assert sorted(path.name for path in job.work_dir.iterdir()) == ["final", "step_2", "step_3"]


def test_a_stopped_job_goes_on_when_it_is_run_again(tmp_path: Path, start: Path) -> None:
    job, reported = job_in(tmp_path, start, checkpoint_every=1), []
    run(job, reported.append, stopped=lambda: len(reported) == 2)
    assert [path.name for path in [newest_step(job)] if path] == ["step_2"]
    run(job, reported.append)
    assert [step["step"] for step in reported] == [1, 2, 3, 4]


def test_an_architecture_that_changes_logits_after_its_head_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = GraniteConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        logits_scaling=8.0,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    job = job_in(tmp_path, save_tiny(tmp_path / "start", GraniteForCausalLM(config)))
    with pytest.raises(TrainError, match=r"differ by .* GraniteForCausalLM cannot be trained"):
        run(job)
