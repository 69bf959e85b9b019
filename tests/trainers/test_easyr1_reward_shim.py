"""The loss that EasyR1 computes from the reward shim's numbers equals the embedded trainer's."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from easyr1_worlds import reply
from local_loops import run
from local_tiny import tiny_challenger, tiny_job

from core.grading.grader import Grader
from core.methods import METHODS as ALL_METHODS
from core.methods import Method
from core.methods.base import Floats
from core.methods.ttrl import Ttrl
from core.rollouts.scoring import learned_from
from core.settings.parsing import parse_method
from core.settings.templates import SolverTemplate
from core.settings.trainers import EasyR1Settings
from core.settings.training import Training
from core.types import Group, QuestionFormat, Scored
from services.inference.client import InferenceError, Reply
from services.inference.engines.base import Completion
from tests.fake_service import fake_service
from trainers.base import ChallengerJob, SolverJob, SolverService, TrainJob
from trainers.easyr1.config import render
from trainers.easyr1.reward_shim import compute_score
from trainers.local.ranks import Ranks
from trainers.local.rewards import SolverReward, challenger_reward
from trainers.rewards import Rewarded, group_seed
from trainers.rollouts import folder_in, read_step
from trainers.schedule import questions_at

METHODS: dict[str, dict[str, Any]] = {
    "rzero": {},
    "ttrl": {"trained_share": 1.0},
    "srt": {"loss_average": "token"},
    "evol_rl": {"trained_share": 1.0, "entropy_coefficient": 0.0},
    "poly_epo": {},
    "pass_at_n": {},
    "grpo": {},
    "grpo_div": {},
    "rloo": {"loss_average": "token"},
    "supervised": {},
    "empo": {},
    "soft_srt": {"loss_average": "token"},
}
SIZE = 8  # rollouts in a group


class FakeTokenizer:
    """Renders a chat as its last message; each character is a token."""

    added_tokens_decoder: ClassVar[dict[int, Any]] = {}
    all_special_tokens: ClassVar[list[str]] = []

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return messages[-1]["content"]

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}


def render_job(job: TrainJob, folder: Path) -> str:
    """The path of the job's file, as EasyR1's configuration names it."""
    render(job, EasyR1Settings(gpus_per_node=1, update_micro_batch=1), FakeTokenizer(), folder)
    return str(folder / "job.json")


def solver_job_with(tmp_path: Path, name: str, settings: dict[str, Any], **training: Any) -> SolverJob:
    method = parse_method(name, settings)
    job = tiny_job(tmp_path, reward=method, rollouts_per_prompt=SIZE, prompts_per_step=4, **training)
    return replace(job, questions=tuple(replace(q, truth="1") for q in job.questions))


def random_responses(rng: random.Random, groups: int, answers: Sequence[str] = "012") -> list[list[str]]:
    """Responses with several strategies and answers, some without an answer; none of the first group has one."""

    def response(silent: bool) -> str:
        steps = " then ".join(rng.choice(["add 1 and 2", "double 3", "guess"]) for _ in range(rng.randint(1, 3)))
        return steps if silent or rng.random() < 0.2 else rf"{steps} \boxed{{{rng.choice(answers)}}}"

    return [[response(silent=group == 0) for _ in range(SIZE)] for group in range(groups)]


def batch(
    job: TrainJob, responses: Sequence[Sequence[str]], rng: random.Random
) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """EasyR1's batch of step 1 in a random order, and each row's (group, member)."""
    questions = questions_at(job, 1) if isinstance(job, SolverJob) else [None] * len(responses)
    rows = []
    for index, (question, group) in enumerate(zip(questions, responses, strict=True)):
        known: dict[str, Any] = {"step": 1, "index": index}
        if question is not None:
            known |= {"question_id": question.question_id, "question": question.text}
            known |= {"label": question.label, "truth": question.truth}
        rows += [
            ({"response": text, "response_length": len(text), "ground_truth": json.dumps(known)}, (index, member))
            for member, text in enumerate(group)
        ]
    rng.shuffle(rows)
    return [row for row, _ in rows], [position for _, position in rows]


def easyr1_rloo(overall: np.ndarray[Any, Any], groups: list[int]) -> np.ndarray[Any, Any]:
    """EasyR1's advantages: `s_i` less the mean of the prompt's other scores (verl/trainer/core_algos.py)."""
    advantages = np.zeros(len(overall))
    for i, group in enumerate(groups):
        others = [overall[j] for j in range(len(overall)) if groups[j] == group and j != i]
        advantages[i] = overall[i] - np.mean(others)
    return advantages


def weights(advantages: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], average: str) -> np.ndarray[Any, Any]:
    """The weight of a token of each rollout in EasyR1's loss."""
    tokens = len(advantages) * lengths if average == "sequence" else lengths.sum()
    per_token: np.ndarray[Any, Any] = advantages / tokens
    return per_token


def completion(text: str) -> Completion:
    return Completion(text, tuple(range(len(text))), (0.0,) * len(text), "stop", 0.5)


Scores = list[dict[str, float]]


def scored(
    tmp_path: Path, job: TrainJob, responses: Sequence[Sequence[str]], rng: random.Random
) -> tuple[list[dict[str, Any]], list[tuple[int, int]], Scores]:
    """EasyR1's batch, each row's (group, member), and the shim's scores of the rows."""
    rows, positions = batch(job, responses, rng)
    return rows, positions, compute_score(rows, render_job(job, tmp_path / "easyr1"))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("average", ["sequence", "token", "max_length"])
def test_a_token_s_weight_in_the_loss_is_that_of_the_embedded_trainer(
    tmp_path: Path, grader: Grader, name: str, average: str
) -> None:
    """This holds with dropped prompts and undecided rollouts too: the weights are normalised over what is learned
    from."""
    settings = {**METHODS[name], "loss_average": average}
    if average == "max_length":
        settings["kl_coefficient"] = 0.0
    job = solver_job_with(tmp_path, name, settings)
    rng = random.Random(name)
    # The grader cannot decide whether "5th term" is a number.
    responses = random_responses(rng, 4, answers=["0", "1", "2", "5th term"])
    rows, positions, scores = scored(tmp_path, job, responses, rng)
    groups = [[completion(text) for text in group] for group in responses]
    local = SolverReward(job, Ranks(), grader)(1, groups)
    assert isinstance(job.reward, Method)
    assert any(scored.undecided for scored in local.groups) == (job.reward.labels == "offline")
    expected, learned = np.zeros((4, SIZE)), np.zeros((4, SIZE), dtype=np.bool_)
    for g, group in enumerate(local.groups):
        if members := learned_from(group, range(SIZE), job.reward):
            clusters = local.clusters[g]
            of_members = [clusters[i] for i in members] if clusters else None
            expected[g, members] = job.reward.advantages(group.rewards[members], of_members)
            learned[g, members] = True
    length = np.array([[len(text) for text in group] for group in responses], dtype=float)
    of_a_token = {
        "sequence": 1 / (learned.sum() * length),
        "token": np.full((4, SIZE), 1 / length[learned].sum()),
        "max_length": np.full((4, SIZE), 1 / (learned.sum() * job.training.sampling.max_tokens)),
    }[average]

    advantages = easyr1_rloo(np.array([score["overall"] for score in scores]), [group for group, _ in positions])
    lengths = np.array([row["response_length"] for row in rows], dtype=float)
    token_weights = weights(advantages, lengths, average)
    for (g, i), weight, score in zip(positions, token_weights, scores, strict=True):
        assert ("reward" in score) == (i not in local.groups[g].undecided)
        assert score.get("reward", 0) == pytest.approx(local.groups[g].rewards[i], abs=1e-9)
        assert score["learned_from"] == learned[g, i]
        assert score["advantage"] == pytest.approx(expected[g, i], abs=1e-9)
        assert weight == pytest.approx(expected[g, i] * of_a_token[g, i], abs=1e-12)
    assert {"majority_share", "same_label_share", "labelled_share", "unparsed_share"} < local.metrics.keys()
    for name, figure in local.metrics.items():
        assert np.mean([score[name] for score in scores]) == pytest.approx(figure), name


@pytest.mark.parametrize("name", ["rzero", "rloo", "grpo_div", "pass_at_n", "poly_epo"])
def test_the_others_of_an_undecided_rollout_have_the_advantages_that_the_embedded_trainer_stores(
    tmp_path: Path, start: Path, grader: Grader, name: str
) -> None:
    """`yes!` may be a factorial, so it is undecided whether it is `yes`. Of the last group two are decided."""
    job = replace(solver_job_with(tmp_path, name, {**METHODS[name], "kl_coefficient": 0.0}, steps=1), stored_prompts=4)
    job = replace(job, questions=tuple(replace(question, label="yes") for question in job.questions))
    rng = random.Random(name)
    answers = [["yes!", *rng.sample(["yes!", "yes", *["no"] * (SIZE - 3)], SIZE - 1)] for _ in range(3)]
    answers.append(["yes", "no", *["yes!"] * (SIZE - 2)])
    steps = ["add", "double", "guess"]
    texts = [[rf"{rng.choice(steps)} {i}a \boxed{{{answer}}}" for i, answer in enumerate(group)] for group in answers]

    def reward_texts(step: int, _: object) -> Rewarded:
        return SolverReward(job, Ranks(), grader)(step, [[completion(text) for text in group] for group in texts])

    embedded = replace(job, work_dir=tmp_path / "embedded", start=replace(job.start, path=str(start)))
    run(embedded, reward=reward_texts)
    expected = [row.advantage for row, _ in read_step(folder_in(embedded.work_dir), 1)]
    _, positions, scores = scored(tmp_path, job, texts, rng)
    of_position = dict(zip(positions, scores, strict=True))
    advantages = [of_position[g, i] for g in range(4) for i in range(SIZE)]
    trained = [score["advantage"] if score["learned_from"] else None for score in advantages]
    assert [a is None for a in trained] == [a is None for a in expected]
    assert any(expected)
    assert [a or 0.0 for a in trained] == pytest.approx([a or 0.0 for a in expected], abs=1e-9)
    passed_on = easyr1_rloo(np.array([score["overall"] for score in scores]), [group for group, _ in positions])
    left_out = [answers[group][member] == "yes!" for group, member in positions]
    assert passed_on[left_out] == pytest.approx(0, abs=1e-12)


def test_rollouts_that_only_vote_are_not_learned_from(tmp_path: Path) -> None:
    """TTRL trains on half of the votes: the advantages of this half sum to zero, and its weight is doubled."""
    job = solver_job_with(tmp_path, "ttrl", {})
    rng = random.Random(1)
    rows, positions, scores = scored(tmp_path, job, random_responses(rng, 4), rng)
    for group in range(1, 4):
        of_group = [score for score, (g, _) in zip(scores, positions, strict=True) if g == group]
        assert sum(score["learned_from"] for score in of_group) == SIZE / 2
        assert sum(score["advantage"] for score in of_group) == pytest.approx(0, abs=1e-9)
        assert all(score["overall"] == 0 for score in of_group if not score["learned_from"])
        learned = [score for score in of_group if score["learned_from"] and score["advantage"]]
        for score in learned:  # half of 3 of 4 groups is learned from: 12 of 32 rows
            assert score["overall"] == pytest.approx(score["advantage"] * 7 / 8 * 32 / 12)
    assert sum(score["learned_from"] for score in scores) == 12
    again = compute_score(rows[::-1], render_job(job, tmp_path / "again"))[::-1]
    assert [score["overall"] for score in again] == pytest.approx([score["overall"] for score in scores])


class Control(Ttrl):
    """Random rewards, as a control. Its estimator draws random numbers too, like one over sampled sets."""

    type: Literal["control"] = "control"  # type: ignore[assignment]
    trained_share: float = 1.0

    def score(self, group: Group) -> Scored:
        return Scored(group.question_id, np.random.default_rng(group.seed).random(len(group.answers)))

    def _estimate(self, rewards: Floats, _clusters: Sequence[int] | None, seed: int) -> Floats:
        draws: Floats = np.random.default_rng(seed + 1).normal(size=len(rewards))
        centred: Floats = draws - draws.mean()
        return centred


def test_each_group_has_a_seed_and_its_question_with_either_trainer(
    tmp_path: Path, grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALL_METHODS, "control", Control)
    job = solver_job_with(tmp_path, "control", {})
    responses = [[rf"\boxed{{1}} {member}" for member in range(SIZE)]] * 4  # the same ones, sorted, in every group
    _, positions, scores = scored(tmp_path, job, responses, random.Random(1))
    rewards, advantages = np.zeros((4, SIZE)), np.zeros((4, SIZE))
    for position, score in zip(positions, scores, strict=True):
        rewards[position], advantages[position] = score["reward"], score["advantage"]
    assert len(np.unique(rewards, axis=0)) == len(np.unique(advantages, axis=0)) == 4

    local = SolverReward(job, Ranks(), grader)(1, [[completion(text) for text in group] for group in responses])
    assert [scored.label for scored in local.groups] == [question.question_id for question in questions_at(job, 1)]
    np.testing.assert_array_equal(rewards, [scored.rewards for scored in local.groups])
    seeds = [group_seed(job.run_seed, job.key, 1, prompt) for prompt in range(4)]
    expected = [Control().advantages(local.groups[prompt].rewards, None, seed) for prompt, seed in enumerate(seeds)]
    np.testing.assert_allclose(advantages, expected)


@pytest.mark.parametrize("name", ["rzero", "ttrl"])
def test_the_rollouts_that_are_handed_back_are_those_that_easyr1_learns_from(tmp_path: Path, name: str) -> None:
    job = replace(solver_job_with(tmp_path, name, {}), stored_prompts=3)
    rng = random.Random(name)
    rows, positions, scores = scored(tmp_path, job, random_responses(rng, 4), rng)
    stored = read_step(folder_in(job.work_dir), 1)
    assert len({rollout.prompt for rollout, _ in stored}) == 3
    assert len(stored) == 3 * SIZE
    expected = [
        (group, row["response"], score.get("reward", 0.0), score["advantage"] if score["learned_from"] else None)
        for row, (group, _), score in zip(rows, positions, scores, strict=True)
        if group in {rollout.prompt for rollout, _ in stored}
    ]
    handed_back = [(rollout.prompt, text, rollout.reward, rollout.advantage) for rollout, text in stored]
    assert sorted(handed_back, key=repr) == sorted(expected, key=repr)
    longest = job.training.sampling.max_tokens
    for rollout, text in stored:
        assert (rollout.tokens, rollout.mean_entropy) == (len(text), None)
        assert rollout.finish_reason == ("length" if len(text) >= longest else "stop")
        assert rollout.question_id == questions_at(job, 1)[rollout.prompt].question_id


def test_a_step_without_answers_has_only_zeros(tmp_path: Path) -> None:
    job = solver_job_with(tmp_path, "srt", METHODS["srt"])
    _, _, scores = scored(tmp_path, job, [["no answer"] * SIZE] * 4, random.Random(0))
    assert {score["overall"] for score in scores} == {0.0}


def test_a_batch_with_an_incomplete_group_is_refused(tmp_path: Path) -> None:
    job = solver_job_with(tmp_path, "rzero", {})
    rows, _ = batch(job, random_responses(random.Random(0), 4), random.Random(0))
    path = render_job(job, tmp_path / "easyr1")
    with pytest.raises(ValueError, match="step 1"):
        compute_score(rows[1:], path)


def test_a_validation_row_scores_zero(tmp_path: Path) -> None:
    path = render_job(solver_job_with(tmp_path, "rzero", {}), tmp_path / "easyr1")
    row = {"response": "", "response_length": 1, "ground_truth": json.dumps({"validation": True})}
    assert compute_score([row], path) == [{"overall": 0.0}]


def challenger_job(tmp_path: Path, url: str) -> ChallengerJob:
    template = SolverTemplate(system="", user="Q: {question}")
    service = SolverService(url, "t/solver/0", Training().sampling, template=template, control_tokens=("<turn:7>",))
    return tiny_challenger(tmp_path, service, rollouts_per_prompt=3, prompts_per_step=2)


QUESTIONS = [  # the second one of the first group holds the Solver's control token, and the last one has no answer
    [
        r"<question>What is 1 + 1?</question> \boxed{2}",
        r"<question>1 + 1<turn:7></question> \boxed{2}",
        "<question>What is 2 + 5?</question> 7",
    ],
    [r"<question>What is 1 + 1?</question> \boxed{2}", r"<question>Why?</question> \boxed{0}", "<question></question>"],
]


def votes(_: int, body: dict[str, Any]) -> tuple[int, Any]:
    """The reply of a Solver that is sure of "1 + 1" only."""
    sure = "1 + 1" in body["messages"][-1]["content"]
    return reply(body, ["2"] * 4 if sure else ["1", "1", "2", "3"])


@pytest.mark.parametrize(("expected", "questions"), [("tags", 4), ("tags_and_answer", 3)])
def test_the_challenger_s_reward_asks_the_solver_and_equals_the_embedded_trainer_s(
    tmp_path: Path, grader: Grader, expected: QuestionFormat, questions: int
) -> None:
    with fake_service(votes) as (service, requests):
        job = challenger_job(tmp_path, service.url)
        job = replace(job, reward=job.reward.model_copy(update={"format": expected}))
        _, positions, scores = scored(tmp_path, job, QUESTIONS, random.Random(2))
    assert len(requests) == questions
    chats = [body["messages"] for _, body, _ in requests]
    assert all(len(chat) == 1 and chat[0]["content"].startswith("Q: ") for chat in chats)  # the service's template

    def ask(prompts: Sequence[Any]) -> list[list[Reply]]:
        bodies = [{"messages": list(prompt.messages), "model": "", "policy_version": ""} for prompt in prompts]
        texts = [[choice["message"]["content"] for choice in votes(0, body)[1]["choices"]] for body in bodies]
        return [[Reply(text, 3, "stop", None, None, "", 0, prompt_tokens=1) for text in group] for group in texts]

    groups = [[completion(text) for text in group] for group in QUESTIONS]
    local = challenger_reward(job, Ranks(), 1, groups, grader=grader, ask=ask)
    for (g, i), score in zip(positions, scores, strict=True):
        assert score["reward"] == pytest.approx(float(local.groups[g].rewards[i]))
        assert {name: score[name] for name in local.metrics} == local.metrics


def test_a_solver_that_does_not_answer_ends_the_job(tmp_path: Path) -> None:
    with fake_service(lambda *_: (503, {})) as (service, _):
        job = challenger_job(tmp_path, service.url)
        rows, _ = batch(job, QUESTIONS, random.Random(2))
        path = render_job(job, tmp_path / "easyr1")
        tree = json.loads(Path(path).read_text())
        Path(path).write_text(json.dumps({**tree, "patience_s": 0.1}))
        with pytest.raises(InferenceError, match=re.escape(service.url)):
            compute_score(rows, path)


def test_equal_rollouts_of_equal_prompts_end_the_job(tmp_path: Path) -> None:
    """A Challenger that always writes the same question does not end the job, and neither do a few groups that happen
    to agree."""
    with fake_service(votes) as (service, _):
        job = challenger_job(tmp_path, service.url)
        path = render_job(job, tmp_path / "easyr1")
        for groups in ([QUESTIONS[0]] * 4, [[QUESTIONS[0][0]] * 3] * 8, [QUESTIONS[0]] * 7 + [QUESTIONS[1]]):
            compute_score(batch(job, groups, random.Random(2))[0], path)
        for groups in ([QUESTIONS[0]] * 8, QUESTIONS * 4):  # one rank, and several ranks that draw the same rollouts
            with pytest.raises(ValueError, match="step 1"):
                compute_score(batch(job, groups, random.Random(2))[0], path)
