"""What rollouts earn: texts in, scores and the step's figures out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from local_tiny import tiny_job

from core.config import ChallengerReward, Sampling
from core.grading import Grader
from core.prompts import solver_messages
from services.inference.engine import Prompt
from trainers.base import SolverService, TrainError, TrainJob
from trainers.local.ranks import Ranks
from trainers.local.rewards import challenger_reward, make_reward, solver_reward
from trainers.local.schedule import questions_at


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as grader:
        yield grader


def challenger_job(votes: int = 4) -> TrainJob:
    return replace(
        tiny_job(Path("unused")),
        role="challenger",
        reward=ChallengerReward(votes=votes),
        questions=(),
        solver=SolverService("http://127.0.0.1:1/v1", "t/solver/0", Sampling(max_tokens=33)),
    )


def test_the_solver_earns_one_for_the_label_however_it_is_spelled(grader: Grader) -> None:
    job = tiny_job(Path("unused"))
    labels = [question.label for question in questions_at(job, 2)]
    groups = [
        [rf"so \boxed{{{label}}}", rf"\boxed{{0}} or \boxed{{{label}.0}}", rf"\boxed{{{label}9}}", "no idea"]
        for label in labels
    ]
    rewarded = solver_reward(job, Ranks(), 2, groups, grader=grader)
    assert [[score.value for score in group] for group in rewarded.scores] == [[1, 1, 0, 0]] * 3
    assert rewarded.metrics == {"unparsed_share": 0.25}


def test_the_challenger_earns_what_the_solver_is_unsure_of(grader: Grader) -> None:
    """Four votes: "even" splits 2 to 2 (p_hat 1/2), "sure" is unanimous, "mute" has one answer of four."""
    texts = {"even": ["1", "1", "2", "2"], "sure": ["3"] * 4, "mute": ["4", None, None, None]}
    asked: list[Prompt] = []

    def ask(prompts: Sequence[Prompt]) -> list[list[str]]:
        asked.extend(prompts)
        answers = [texts[prompt.messages[-1]["content"].split()[0]] for prompt in prompts]
        return [["?" if a is None else rf"\boxed{{{a}}}" for a in group] for group in answers]

    # so different that no two share a BLEU cluster: each is a cluster of 1 of B = 4
    questions = ["even a b c d", "sure e f g h", None, "mute i j k l"]
    rollouts = ["malformed" if q is None else rf"<question>{q}</question> \boxed{{0}}" for q in questions]
    job = challenger_job()
    rewarded = challenger_reward(job, Ranks(), 3, [rollouts[:2], rollouts[2:]], grader=grader, ask=ask)

    # (1 - 2|1/2 - 1/2|) - 1/4;  max(0, 0 - 1/4);  malformed 0;  (1 - 2|1/4 - 1/2|) - 1/4
    assert [[score.value for score in group] for group in rewarded.scores] == [[0.75, 0], [0, 0.25]]
    assert rewarded.metrics == pytest.approx(
        {
            "malformed_share": 1 / 4,
            "uncertainty": (1 + 0 + 1 / 2) / 3,
            "repetition": 1 / 4,
            "p_hat": (1 / 2 + 1 + 1 / 4) / 3,
            "unparsed_share": 3 / 12,
        }
    )
    assert [list(prompt.messages) for prompt in asked] == [solver_messages(q) for q in questions if q is not None]
    assert {(prompt.n, prompt.sampling.max_tokens) for prompt in asked} == {(4, 33)}
    assert len({prompt.seed for prompt in asked}) == 3


def test_a_step_of_malformed_questions_asks_for_nothing(grader: Grader) -> None:
    def ask(prompts: Sequence[Prompt]) -> list[list[str]]:
        assert not prompts
        return []

    rewarded = challenger_reward(challenger_job(), Ranks(), 1, [["x", "y"]], grader=grader, ask=ask)
    assert [score.value for score in rewarded.scores[0]] == [0, 0]
    assert rewarded.metrics == {"malformed_share": 1}


def test_a_challenger_without_a_solver_is_refused(grader: Grader) -> None:
    with pytest.raises(TrainError, match=r"t/1/train_solver: solver: expected the service"):
        make_reward(replace(challenger_job(), solver=None), Ranks(), grader)
