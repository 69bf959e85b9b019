"""What rollouts earn: texts in, scores and the step's figures out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from local_tiny import tiny_challenger, tiny_job

from core.grading.grader import Grader
from core.methods import Method
from core.methods.evol_rl import EvolRl
from core.methods.poly_epo import GrpoDiv
from core.methods.scrl import Scrl
from core.methods.ttrl import Ttrl
from core.questions.prompts import solver_messages
from core.settings.training import Sampling
from services.inference.engines.base import Completion, Prompt
from trainers.base import ChallengerJob, SolverService
from trainers.local.ranks import Ranks
from trainers.local.rewards import challenger_reward, solver_reward
from trainers.schedule import questions_at


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as grader:
        yield grader


def challenger_job(votes: int = 4) -> ChallengerJob:
    service = SolverService("http://127.0.0.1:1/v1", "t/solver/0", Sampling(max_tokens=33))
    return tiny_challenger(Path("unused"), service, votes)


def written(texts: Sequence[str], entropy: float = 0.5) -> list[Completion]:
    return [Completion(text, (1,), (-0.1,), "stop", entropy) for text in texts]


def test_the_solver_earns_one_for_the_label_however_it_is_spelled(grader: Grader) -> None:
    job = tiny_job(Path("unused"))
    labels = [question.label for question in questions_at(job, 2)]
    groups = [
        [rf"so \boxed{{{label}}}", rf"\boxed{{0}} or \boxed{{{label}.0}}", rf"\boxed{{{label}9}}", "no idea"]
        for label in labels
    ]
    rewarded = solver_reward(job, Ranks(), 2, [written(group) for group in groups], grader=grader)
    assert [scored.rewards.tolist() for scored in rewarded.groups] == [[1, 1, 0, 0]] * 3
    assert [scored.label for scored in rewarded.groups] == labels
    assert rewarded.metrics == pytest.approx({"unparsed_share": 1 / 4, "majority_share": 2 / 4, "same_label_share": 0})


GROUPS = [
    [r"1 + 2 = 3 \boxed{3}", r"2 + 1 = 3 \boxed{3}", r"1 - 2 = 4 \boxed{4}", "?"],
    [r"\boxed{3}", r"9 = 9 \boxed{3}", r"8 = 8 \boxed{3}", r"5 + 5 = 3 \boxed{3}"],
    ["?", "?", "?", "?"],
]


@pytest.mark.parametrize(
    ("method", "first", "learn"),
    [
        (Ttrl(), [1, 1, 0, 0], [True, True, False]),
        # hashed words: the first two are novel by the same amount, up to what they share with the third
        (EvolRl(), None, [True, True, False]),
        # shares 2/4, 1/4, 1/4 of one entropy: 2/4 >= 0.375, leading by 1/4
        (Scrl(), [0.5, 0.5, 0, 0], [True, True, True]),
        # skeletons: "# + # = #" twice, "# - # = #", "?": bonuses (4/2 - 1)/3 and 1, times 0.5, on the label 3
        (GrpoDiv(labels="online"), [1 + 1 / 6, 1 + 1 / 6, 0.5, 0.5], [True, True, False]),
    ],
    ids=lambda value: value.type if isinstance(value, Method) else "",
)
def test_every_signal_reaches_its_method(
    method: Method, first: list[float] | None, learn: list[bool], grader: Grader
) -> None:
    job = replace(tiny_job(Path("unused")), reward=method)
    rewarded = solver_reward(job, Ranks(), 1, [written(group) for group in GROUPS], grader=grader)
    found = [scored.rewards.tolist() for scored in rewarded.groups]
    if first is not None:
        assert found[0] == pytest.approx(first)
    else:
        assert found[0][2:] == [-1, -1]
        assert min(found[0][:2]) >= 0.5
    assert [scored.learn for scored in rewarded.groups] == learn
    assert rewarded.metrics["same_label_share"] == 2 / 3  # two of three questions say 3, one nothing
    assert rewarded.metrics["majority_share"] == pytest.approx((2 / 4 + 4 / 4 + 0) / 3)
    if method.type == "grpo_div":
        assert rewarded.clusters == [(1, 1, 2, 3), (100, 1, 1, 2), (1, 1, 1, 1)]


def test_known_truths_are_measured_and_not_rewarded(grader: Grader) -> None:
    """SCRL labels the first two groups 3; the truth is 3, 4 and 7. The third has no majority that is large
    enough, so no label; the answer that it takes for wrong, 7, is its truth."""
    job = replace(tiny_job(Path("unused")), reward=Scrl())
    at = {question.question_id: i for i, question in enumerate(questions_at(job, 1))}
    told = [replace(q, truth=["3", "4", "7"][at.get(q.question_id, 0)]) for q in job.questions]
    known = replace(job, questions=tuple(told))
    thin = [rf"\boxed{{{answer}}}" for answer in "5555566667"] + ["?", "?"]
    groups = [written(group) for group in (*GROUPS[:2], thin)]
    rewarded, blind = (solver_reward(each, Ranks(), 1, groups, grader=grader) for each in (known, job))
    figures = {
        "truths_known": 3,
        "labelled_share": 2 / 3,  # the third has 5 of 12 votes for 5, 4 for 6: a lead of 1/12
        "labels_checked": 2,
        "label_accuracy": 1 / 2,
        "negatives_checked": 1,
        "negative_label_accuracy": 0,
    }
    assert {name: rewarded.metrics[name] for name in figures} == figures
    assert not figures.keys() & blind.metrics.keys()
    assert [one.rewards.tolist() for one in rewarded.groups] == [one.rewards.tolist() for one in blind.groups]


def test_a_question_that_comes_twice_in_a_step_is_one_label_checked(grader: Grader) -> None:
    job = tiny_job(Path("unused"))
    [first, *_] = questions_at(job, 1)
    job = replace(job, reward=Ttrl(), questions=(replace(first, truth="3"),))
    metrics = solver_reward(job, Ranks(), 1, [written(GROUPS[0])] * 3, grader=grader).metrics
    assert (metrics["truths_known"], metrics["labels_checked"], metrics["label_accuracy"]) == (1, 1, 1)


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
    completions = [written(rollouts[:2]), written(rollouts[2:])]
    rewarded = challenger_reward(job, Ranks(), 3, completions, grader=grader, ask=ask)

    # (1 - 2|1/2 - 1/2|) - 1/4;  max(0, 0 - 1/4);  malformed 0;  (1 - 2|1/4 - 1/2|) - 1/4
    assert [scored.rewards.tolist() for scored in rewarded.groups] == [[0.75, 0], [0, 0.25]]
    assert rewarded.metrics == pytest.approx(
        {
            "malformed_share": 1 / 4,
            "uncertainty": (1 + 0 + 1 / 2) / 3,
            "repetition": 1 / 4,
            "p_hat": (1 / 2 + 1 + 1 / 4) / 3,
            "repeated_share": 0,
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

    rewarded = challenger_reward(challenger_job(), Ranks(), 1, [written(["x", "y"])], grader=grader, ask=ask)
    assert rewarded.groups[0].rewards.tolist() == [0, 0]
    assert rewarded.metrics == {"malformed_share": 1}
