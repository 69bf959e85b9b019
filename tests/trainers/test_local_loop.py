"""The training loop with one worker: what it learns from, what it reports, and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_loops import reward_sevens, run
from local_tiny import answering_model, save_tiny, tiny_job, tiny_tokenizer

from core.methods.poly_epo import Grpo, PassAtN
from core.methods.srt import Srt
from core.methods.ttrl import Ttrl
from core.settings.training import Sampling
from core.statistics.guard import Guard
from core.types import Scored
from trainers.base import TrainError, TrainJob
from trainers.local.checkpoints import save_step
from trainers.local.rewards import Completions, Reward
from trainers.local.state import Metrics, State, fingerprint, newest_step
from trainers.local.update import make_optimiser
from trainers.rewards import Rewarded
from trainers.rollouts import Content, folder_in, read_step


def test_every_forward_pass_shows_that_the_worker_computes(tmp_path: Path, start: Path) -> None:
    """A training of which nothing is seen for long is killed, and a single step may take hours."""
    job, beats = tiny_job(tmp_path, start, steps=1), list[str]()

    def reward(step: int, completions: Completions) -> Rewarded:
        beats.append("reward")
        return reward_sevens(step, completions)

    def beat(*_: object) -> None:
        beats.append("pass")

    run(job, reward=reward, beat=beat)
    sampling, updating = beats.index("reward"), len(beats) - beats.index("reward") - 1
    assert sampling >= 3  # a completion has at least \\boxed{, a digit and }
    rows, micro_batch = job.training.prompts_per_step * job.rollouts, job.training.micro_batch
    assert updating == 2 * -(-rows // micro_batch)  # of the policy and of the reference


def test_the_loop_learns_which_digit_is_rewarded(tmp_path: Path, start: Path) -> None:
    job = tiny_job(
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
    run(job, metrics.append, reward=reward)
    after, before = ((folder / "model.safetensors").read_bytes() for folder in (job.work_dir / "final", start))
    return after != before, metrics[0]


def test_only_the_trained_share_is_learned_from(tmp_path: Path, start: Path) -> None:
    """Of four rollouts the first two are trained on: the rewards of the others do not change the weights."""
    settings = {"steps": 1, "weight_decay": 0.0, "reward": Ttrl(kl_coefficient=0.0)}
    first, second = (tiny_job(tmp_path / name, start, **settings) for name in ("first", "second"))
    assert train_one_step(first, start, reward_members(slice(0, 1)))[0]
    changed, metrics = train_one_step(second, start, reward_members(slice(2, 3)))
    assert not changed
    assert (metrics["zero_advantage_share"], metrics["reward_mean"]) == (1, 0.25)


def test_a_dropped_prompt_does_not_change_the_weights(tmp_path: Path, start: Path) -> None:
    job = tiny_job(tmp_path, start, steps=1, reward=Ttrl(kl_coefficient=1.0))
    changed, metrics = train_one_step(job, start, reward_members(slice(0, 1), learn=False))
    assert not changed
    assert metrics["dropped_share"] == 1
    assert "kl" not in metrics


def test_a_set_objective_changes_the_weights(tmp_path: Path, start: Path) -> None:
    settings = {"steps": 1, "weight_decay": 0.0, "reward": PassAtN(set_size=2)}
    one_right, all_right = (tiny_job(tmp_path / name, start, **settings) for name in ("some", "all"))
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
    job = tiny_job(tmp_path, start, steps=2, weight_decay=0.0, reward=Srt(kl_coefficient=coefficient))
    changed, metrics = train_one_step(job, save_step_away_from_reference(job), reward_members(slice(0, 0)))
    assert metrics["kl"] > 0.01
    assert changed == (coefficient > 0)
    assert metrics["zero_advantage_share"] == (0 if coefficient else 1)


def test_a_kl_in_the_reward_reaches_the_groups_after_a_dropped_one(tmp_path: Path, start: Path) -> None:
    job = tiny_job(tmp_path, start, steps=2, weight_decay=0.0, reward=Srt(kl_coefficient=0.5))

    def all_but_the_first(step: int, completions: Completions) -> Rewarded:
        return Rewarded([Scored("7", np.zeros(len(group)), i > 0) for i, group in enumerate(completions)], {})

    changed, metrics = train_one_step(job, save_step_away_from_reference(job), all_but_the_first)
    assert changed
    assert metrics["dropped_share"] == pytest.approx(1 / 3)
    assert metrics["zero_advantage_share"] == 0


LeftOut = Mapping[int, tuple[int, ...]]  # group -> its undecided rollouts


def reward_and_leave_out(undecided: LeftOut, *rewards: float) -> Reward:
    """These rewards for the rollouts of every group; those at `undecided`, by group, are left out."""

    def reward(step: int, completions: Completions) -> Rewarded:
        groups = [Scored("7", np.array(rewards), undecided=undecided.get(i, ())) for i in range(len(completions))]
        contents = [[Content(f"t/1/{i}", f"question {i}")] * len(group) for i, group in enumerate(completions)]
        return Rewarded(groups, {}, contents=contents)

    return reward


def stored_advantages(job: TrainJob) -> list[list[float | None]]:
    """The advantages of the first step's rollouts, by group."""
    rows = [row for row, _ in read_step(folder_in(job.work_dir), 1)]
    return [[row.advantage for row in rows if row.prompt == prompt] for prompt in range(3)]


def test_no_row_is_trained_for_an_undecided_rollout(tmp_path: Path, start: Path) -> None:
    job = replace(tiny_job(tmp_path, start, steps=1, micro_batch=1), stored_prompts=3)
    events, metrics = list[str](), list[Metrics]()
    undecided = {0: (1,), 1: (0, 1, 3), 2: ()}  # of the second group one rollout is left, which teaches nothing
    rewarding = reward_and_leave_out(undecided, 1.0, 0.0, 0.0, 0.0)

    def reward(step: int, completions: Completions) -> Rewarded:
        events.append("reward")
        return rewarding(step, completions)

    run(job, metrics.append, reward=reward, beat=lambda *_: events.append("pass"))
    assert len(events) - events.index("reward") - 1 == 2 * (3 + 4)  # of the policy and of the reference
    three, four = (job.reward.advantages(np.array([1.0, 0, 0, 0])[:count]).tolist() for count in (3, 4))
    assert stored_advantages(job) == [[three[0], None, *three[1:]], [None] * 4, four]
    assert metrics[0]["dropped_share"] == pytest.approx(1 / 3)
    assert metrics[0]["reward_mean"] == pytest.approx(2 / 8)  # of four rollouts have no reward


def test_a_step_of_undecided_rollouts_only_has_no_reward(tmp_path: Path, start: Path) -> None:
    job = tiny_job(tmp_path, start, steps=1, reward=Grpo(kl_coefficient=1.0))
    everyone = dict.fromkeys(range(3), (0, 1, 2, 3))
    changed, metrics = train_one_step(job, start, reward_and_leave_out(everyone, 0.0, 0.0, 0.0, 0.0))
    assert not changed
    assert metrics["dropped_share"] == 1
    assert "reward_mean" not in metrics


def test_the_reward_of_an_undecided_rollout_has_no_influence(tmp_path: Path, start: Path) -> None:
    """Neither among those that are trained on, nor among the others."""
    folders = []
    for name, entry in (("zero", 0.0), ("other", 5.0)):
        job = tiny_job(tmp_path / name, start, steps=1, reward=Grpo(trained_share=0.75))
        run(job, reward=reward_and_leave_out(dict.fromkeys(range(3), (1, 3)), 1.0, entry, 0.0, entry))
        folders.append(job.work_dir / "final/model.safetensors")
    assert folders[0].read_bytes() == folders[1].read_bytes()


def test_the_kl_in_the_reward_is_that_of_the_same_rollout(tmp_path: Path, start: Path) -> None:
    """A rollout that is left out moves the rows of all rollouts after it."""
    whole, without = (
        replace(tiny_job(tmp_path / name, start, steps=2, reward=Srt(kl_coefficient=0.5)), stored_prompts=3)
        for name in ("whole", "without")
    )
    cases: list[tuple[TrainJob, LeftOut]] = [(whole, {}), (without, {0: (2,)})]
    for job, undecided in cases:
        save_step_away_from_reference(job)
        run(job, reward=reward_and_leave_out(undecided, 0.0, 0.0, 0.0, 0.0))
    expected, advantages = map(stored_advantages, (whole, without))
    assert advantages[1:] == [pytest.approx(of_group) for of_group in expected[1:]]
    assert all(any(of_group) for of_group in expected)


def test_mini_batches_are_complete_groups_where_a_rollout_is_left_out(tmp_path: Path, start: Path) -> None:
    """With equal rewards and no KL the first group teaches nothing, so the others are learned from as if it had all its
    rollouts."""
    changes = {"steps": 1, "weight_decay": 0.0, "prompts_per_update": 1, "reward": Grpo(kl_coefficient=0.0)}
    weights, cases = list[bytes](), dict[str, LeftOut](whole={}, without={0: (3,)})
    for name, undecided in cases.items():
        job = tiny_job(tmp_path / name, start, **changes)

        def reward(step: int, completions: Completions, undecided: LeftOut = undecided) -> Rewarded:
            first, *others = reward_and_leave_out(undecided, 1.0, 0.0, 0.0, 0.0)(step, completions).groups
            return Rewarded([replace(first, rewards=np.zeros(4)), *others], {})

        assert train_one_step(job, start, reward)[0]
        weights.append((job.work_dir / "final/model.safetensors").read_bytes())
    assert weights[0] == weights[1]


SHARES = [0.1, 0.2, 0.9, 0.9, 0.9, 0.9]  # `same_label_share` of each step


def reward_with_label_shares(step: int, completions: Completions) -> Rewarded:
    return Rewarded(reward_sevens(step, completions).groups, {"same_label_share": SHARES[step - 1]})


def test_the_guard_ends_a_job_at_the_step_of_its_alarm(tmp_path: Path, start: Path) -> None:
    guard = Guard(window=1, actions={"one_answer": "stop"}, one_answer_share=0.5)
    job = replace(tiny_job(tmp_path, start, steps=6), guard=guard)
    reported: list[Metrics] = []

    run(job, reported.append, reward=reward_with_label_shares)
    assert [step["step"] for step in reported] == [1, 2, 3]
    last = newest_step(job)
    assert last is not None
    assert last.name == "step_3"
    assert (job.work_dir / "final/model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()

    run(job, reported.append, reward=reward_with_label_shares)
    assert len(reported) == 3  # the job does not go on when it is resumed

    warned = replace(tiny_job(tmp_path / "warned", start, steps=6), guard=Guard(window=1, one_answer_share=0.5))
    run(warned, reported.append, reward=reward_with_label_shares)
    assert [step["step"] for step in reported[3:]] == [1, 2, 3, 4, 5, 6]


def test_the_reference_can_be_another_model_than_the_start(tmp_path: Path, start: Path) -> None:
    other = save_tiny(tmp_path / "other", answering_model(steps=20))
    job = tiny_job(tmp_path, start, steps=1)
    _, own = train_one_step(job, start, reward_members(slice(0, 1)))
    apart = replace(job, work_dir=tmp_path / "apart", reference=replace(job.start, path=str(other)))
    _, far = train_one_step(apart, start, reward_members(slice(0, 1)))
    assert own["kl"] == pytest.approx(0, abs=1e-6)
    assert far["kl"] > 0.01


def test_a_gap_between_sampler_and_trainer_ends_the_job(
    tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.local.step.LARGEST_SAMPLER_GAP", 0.0)  # so that rounding is too much
    with pytest.raises(TrainError, match="sampler"):
        run(tiny_job(tmp_path, start))
