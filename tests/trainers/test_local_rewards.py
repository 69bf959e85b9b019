"""The rewards of rollouts, from their texts to scores and the step's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from local_tiny import tiny_challenger, tiny_job

from core.grading.grader import Grader
from core.methods import Method
from core.methods.evol_rl import EvolRl
from core.methods.poly_epo import Grpo, GrpoDiv, PassAtN, PolyEpo
from core.methods.scrl import Scrl
from core.methods.ttrl import Ttrl
from core.settings.serving import Signals
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from core.types import QuestionFormat
from services.inference.client import Reply
from services.inference.engines.base import Completion, Prompt
from trainers.base import ChallengerJob, SolverJob, SolverService
from trainers.local.ranks import Ranks
from trainers.local.rewards import SolverReward, challenger_reward
from trainers.rewards import Rewarded
from trainers.schedule import questions_at


def challenger_job(votes: int = 4) -> ChallengerJob:
    service = SolverService("http://127.0.0.1:1/v1", "t/solver/0", Sampling(max_tokens=33))
    return tiny_challenger(Path("unused"), service, votes)


def completions_of(texts: Sequence[str], entropy: float = 0.5) -> list[Completion]:
    return [Completion(text, (1,), (-0.1,), "stop", entropy) for text in texts]


def rewarded_of(job: SolverJob, grader: Grader, groups: Sequence[Sequence[str]], step: int = 1) -> Rewarded:
    """The rewards of groups of texts."""
    return SolverReward(job, Ranks(), grader)(step, [completions_of(group) for group in groups])


def test_the_solver_earns_one_for_the_label_in_any_spelling(grader: Grader) -> None:
    job = tiny_job(Path("unused"))
    labels = [question.label for question in questions_at(job, 2)]
    groups = [
        [rf"so \boxed{{{label}}}", rf"\boxed{{0}} or \boxed{{{label}.0}}", rf"\boxed{{{label}9}}", "no idea"]
        for label in labels
    ]
    rewarded = rewarded_of(job, grader, groups, step=2)
    assert [scored.rewards.tolist() for scored in rewarded.groups] == [[1, 1, 0, 0]] * 3
    assert [scored.label for scored in rewarded.groups] == labels
    shares = {"unparsed_share": 1 / 4, "majority_share": 2 / 4, "same_label_share": 0, "undecided_share": 0}
    assert rewarded.metrics == pytest.approx(shares)


def test_an_answer_that_the_grader_cannot_decide_on_is_neither_right_nor_wrong(grader: Grader) -> None:
    """`yes!` may be a factorial, so it is undecided whether it is the label, and whether it is the truth. Strategies:
    "a", "b", "c", "d", of which "b" is that of the undecided rollout."""
    job = replace(tiny_job(Path("unused")), reward=Grpo(), signals=Signals(measure_strategies=True))
    job = replace(job, questions=(replace(job.questions[0], label="yes", truth="yes"),))
    texts = [r"a \boxed{yes}", r"b \boxed{yes!}", r"c \boxed{no}", "d"]
    rewarded = rewarded_of(job, grader, [texts] * 3)
    for scored, contents in zip(rewarded.groups, rewarded.contents, strict=True):
        assert (scored.rewards.tolist(), scored.undecided, scored.learn) == ([1, 0, 0, 0], (1,), True)
        assert [content.agrees for content in contents] == [True, None, False, False]
    metrics = rewarded.metrics
    assert (metrics["undecided_share"], metrics["unparsed_share"]) == (1 / 4, 1 / 4)
    assert (metrics["right_clusters"], metrics["wrong_clusters"]) == (1, 2)
    voted = rewarded_of(replace(job, reward=Ttrl()), grader, [texts] * 3)
    assert "undecided_share" not in voted.metrics
    assert all(scored.undecided == () for scored in voted.groups)


GROUPS = [
    [r"1 + 2 = 3 \boxed{3}", r"2 + 1 = 3 \boxed{3}", r"1 - 2 = 4 \boxed{4}", "?"],
    [r"\boxed{3}", r"9 = 9 \boxed{3}", r"8 = 8 \boxed{3}", r"5 + 5 = 3 \boxed{3}"],
    ["?", "?", "?", "?"],
]


@pytest.mark.parametrize(
    ("method", "first", "learn"),
    [
        (Ttrl(), [1, 1, 0, 0], [True, True, False]),
        # Embeddings of hashed words: the first two are about equally novel.
        (EvolRl(), None, [True, True, False]),
        # Shares 2/4, 1/4, 1/4 with equal entropies: 2/4 >= 0.375, with a lead of 1/4.
        (Scrl(), [0.5, 0.5, 0, 0], [True, True, True]),
        # Skeletons "# + # = #" twice, "# - # = #", "?": bonuses (4/2 - 1)/3 and 1, times 0.5, with the label 3.
        (GrpoDiv(labels="online"), [1 + 1 / 6, 1 + 1 / 6, 0.5, 0.5], [True, True, False]),
    ],
    ids=lambda value: value.type if isinstance(value, Method) else "",
)
def test_every_signal_reaches_its_method(
    method: Method, first: list[float] | None, learn: list[bool], grader: Grader
) -> None:
    job = replace(tiny_job(Path("unused")), reward=method)
    rewarded = rewarded_of(job, grader, GROUPS)
    rewards = [scored.rewards.tolist() for scored in rewarded.groups]
    if first is not None:
        assert rewards[0] == pytest.approx(first)
    else:
        assert rewards[0][2:] == [-1, -1]
        assert min(rewards[0][:2]) >= 0.5
    assert [scored.learn for scored in rewarded.groups] == learn
    assert rewarded.metrics["same_label_share"] == 2 / 3  # two of three questions have the label 3, one has none
    assert rewarded.metrics["majority_share"] == pytest.approx((2 / 4 + 4 / 4 + 0) / 3)
    if method.type == "grpo_div":
        assert rewarded.clusters == [(1, 1, 2, 3), (100, 1, 1, 2), (1, 1, 1, 1)]
        assert [parts["bonus"] for parts in rewarded.groups[0].rollout_parts] == pytest.approx([1 / 3, 1 / 3, 1, 1])


STRATEGIES = ("clusters", "degenerate_share", "right_prompt_share", "right_clusters", "wrong_clusters")


@pytest.mark.parametrize("method", [PolyEpo(set_size=2), PassAtN(set_size=2), Grpo(), GrpoDiv()], ids=lambda m: m.type)
def test_strategies_are_counted_for_every_method_of_poly_epo_s_paper(method: Method, grader: Grader) -> None:
    """The truths are 3, 4 and 7. The strategies of GROUPS are (1, 1, 2, 3), (100, 1, 1, 2) and (1, 1, 1, 1).

    Of the first group, two rollouts of strategy 1 are right, and those of strategies 2 and 3 wrong. The others have no
    right rollout: two strategies are wrong in the second, besides the bare guess, and one in the third.
    """
    job = replace(tiny_job(Path("unused")), reward=method)
    group_of = {question.question_id: i for i, question in enumerate(questions_at(job, 1))}
    answers = [["3", "4", "7"][group_of.get(question.question_id, 0)] for question in job.questions]
    given = [replace(q, label=a, truth=a) for q, a in zip(job.questions, answers, strict=True)]
    measured = replace(job, questions=tuple(given), signals=Signals(measure_strategies=True))

    def figures(job: SolverJob) -> dict[str, float]:
        metrics = rewarded_of(job, grader, GROUPS).metrics
        return {name: metrics[name] for name in STRATEGIES if name in metrics}

    of_truths = {"right_prompt_share": 1 / 3, "right_clusters": 1 / 3, "wrong_clusters": (2 + 2 + 1) / 3}
    of_all = {"clusters": (3 + 2 + 1) / 3, "degenerate_share": 1 / 12}
    assert figures(measured) == pytest.approx(of_all | of_truths)
    unmeasured = of_all | of_truths if "clusters" in method.needs else {"right_prompt_share": 1 / 3}
    assert figures(replace(measured, signals=Signals())) == pytest.approx(unmeasured)
    # What is right depends on the truth, not on the label, which may be the wrong one of a vote.
    voted = replace(measured, questions=tuple(replace(question, label="9") for question in given))
    assert figures(voted) == pytest.approx(of_all | of_truths)
    unknown = replace(measured, questions=tuple(replace(question, truth=None) for question in given))
    assert figures(unknown) == pytest.approx(of_all)


def test_any_point_of_a_polynomial_is_right_and_each_is_a_strategy(grader: Grader) -> None:
    """Poly-EPO 6.2: y = x^2 + 3x + 7 has the points (1, 11), (-4, 11) and (0, 7), and not (2, 3)."""
    curve = r"\in \{(x, y) \mid y = x^2 + 3x + 7\}"
    job = replace(tiny_job(Path("unused")), reward=Grpo(), signals=Signals(clusterer="answer", measure_strategies=True))
    job = replace(job, questions=(replace(job.questions[0], label=curve, truth=curve),))
    boxed = ["(1, 11)", "(x=1, y=11)", "(-4, 11)", "(0, 7)", "(2, 3)", "(2, 3.0)", curve]
    texts = [*(rf"so \boxed{{{answer}}}" for answer in boxed), "?"]
    rewarded = rewarded_of(job, grader, [texts] * 3)
    assert rewarded.groups[0].rewards.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    metrics = rewarded.metrics
    assert (metrics["right_clusters"], metrics["right_prompt_share"], metrics["label_accuracy"]) == (3, 1, 1)
    assert metrics["degenerate_share"] == 2 / 8  # the relation is no answer, as "?" is none
    assert metrics["wrong_clusters"] == 1  # (2, 3)


def test_known_truths_are_measured_and_not_rewarded(grader: Grader) -> None:
    """SCRL labels the first two groups 3; the truths are 3, 4 and 7. The third group's majority is too small for a
    label, and the answer that SCRL takes for wrong there, 7, is the truth."""
    job = replace(tiny_job(Path("unused")), reward=Scrl())
    group_of = {question.question_id: i for i, question in enumerate(questions_at(job, 1))}
    with_truths = [replace(q, truth=["3", "4", "7"][group_of.get(q.question_id, 0)]) for q in job.questions]
    known = replace(job, questions=tuple(with_truths))
    small_majority = [rf"\boxed{{{answer}}}" for answer in "5555566667"] + ["?", "?"]
    groups = [*GROUPS[:2], small_majority]
    rewarded, unknown = (rewarded_of(with_or_without, grader, groups) for with_or_without in (known, job))
    figures = {
        "truths_known": 3,
        "labelled_share": 2 / 3,  # the third group has 5 of 12 votes for 5 and 4 for 6: a lead of 1/12
        "labels_checked": 2,
        "label_accuracy": 1 / 2,
        "negatives_checked": 1,
        "negative_label_accuracy": 0,
        "right_entropy": 0.5,  # all rollouts have the same entropy
        "wrong_entropy": 0.5,
    }
    assert {name: rewarded.metrics[name] for name in figures} == figures
    assert not figures.keys() & unknown.metrics.keys()
    for metrics in (rewarded.metrics, unknown.metrics):
        assert (metrics["positive_labels"], metrics["negative_labels"]) == (2, 1)
    assert [group.rewards.tolist() for group in rewarded.groups] == [group.rewards.tolist() for group in unknown.groups]


def test_the_entropies_of_right_and_wrong_rollouts_by_hand(grader: Grader) -> None:
    """The truths are 3 in two spellings and 8; the third question's is unknown, so its entropies do not count."""
    job = replace(tiny_job(Path("unused")), reward=Scrl())
    questions = questions_at(job, 1)
    truths = dict(zip((question.question_id for question in questions), ("3.0", "8", None), strict=True))
    job = replace(job, questions=tuple(replace(q, truth=truths.get(q.question_id)) for q in job.questions))
    groups = [
        [(r"\boxed{3}", 0.1), (r"\boxed{6/2}", 0.3), (r"\boxed{4}", 0.6), ("?", 1.0)],
        [(r"\boxed{3}", 0.5), (r"\boxed{3}", 0.7), (r"\boxed{8}", 0.2), (r"\boxed{9}", 0.9)],
        [(r"\boxed{3}", 9.0)] * 4,
    ]
    completions = [[Completion(text, (1,), (-0.1,), "stop", entropy) for text, entropy in group] for group in groups]
    metrics = SolverReward(job, Ranks(), grader)(1, completions).metrics
    assert metrics["right_entropy"] == pytest.approx((0.1 + 0.3 + 0.2) / 3)
    assert metrics["wrong_entropy"] == pytest.approx((0.6 + 1.0 + 0.5 + 0.7 + 0.9) / 5)


def test_labels_made_in_training_are_counted_with_and_without_a_truth(grader: Grader) -> None:
    job = replace(tiny_job(Path("unused")), reward=Ttrl())
    metrics = rewarded_of(job, grader, GROUPS).metrics
    assert (metrics["positive_labels"], metrics["negative_labels"]) == (2, 0)  # nobody answers the third question
    assert "right_entropy" not in metrics
    # SCRL: 5 has 6 of 12 votes and a lead of 3; 7, 8 and 9 have 1/12 each, which is below 1/8.
    several = [rf"\boxed{{{answer}}}" for answer in "555555666789"]
    metrics = rewarded_of(replace(job, reward=Scrl()), grader, [*GROUPS[:2], several]).metrics
    assert (metrics["positive_labels"], metrics["negative_labels"]) == (3, 3)


def test_a_question_that_comes_several_times_in_a_step_is_one_checked_label(grader: Grader) -> None:
    job = tiny_job(Path("unused"))
    [first, *_] = questions_at(job, 1)
    job = replace(job, reward=Ttrl(), questions=(replace(first, truth="3"),))
    metrics = rewarded_of(job, grader, [GROUPS[0]] * 3).metrics
    assert (metrics["truths_known"], metrics["labels_checked"], metrics["label_accuracy"]) == (1, 1, 1)


def test_the_challenger_earns_more_for_questions_that_the_solver_is_unsure_of(grader: Grader) -> None:
    """Each question has four votes: "even" is split 2 to 2 (p_hat 1/2), "sure" is unanimous, "mute" has one answer."""
    texts = {"even": ["1", "1", "2", "2"], "sure": ["3"] * 4, "mute": ["4", None, None, None]}
    prompts_asked: list[Prompt] = []

    def ask(prompts: Sequence[Prompt]) -> list[list[Reply]]:
        prompts_asked.extend(prompts)
        answers = [texts[prompt.messages[-1]["content"].split()[0]] for prompt in prompts]
        replies = [["?" if a is None else rf"\boxed{{{a}}}" for a in group] for group in answers]
        return [[Reply(text, 5, "stop", None, None, "r/0", 0, prompt_tokens=20) for text in group] for group in replies]

    # The questions are so different that each is a BLEU cluster of its own: 1 of B = 4.
    questions = ["even a b c d", "sure e f g h", None, "mute i j k l"]
    rollouts = ["malformed" if q is None else rf"<question>{q}</question> \boxed{{0}}" for q in questions]
    job = challenger_job()
    completions = [completions_of(rollouts[:2]), completions_of(rollouts[2:])]
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
            # three questions of 20 tokens, with four answers of 5 tokens each
            "reward_requests": 3,
            "reward_prompt_tokens": 60,
            "reward_reply_tokens": 60,
        }
    )
    assert [list(prompt.messages) for prompt in prompts_asked] == [
        RZERO_SOLVER.messages(q) for q in questions if q is not None
    ]
    assert {(prompt.n, prompt.sampling.max_tokens) for prompt in prompts_asked} == {(4, 33)}
    assert len({prompt.seed for prompt in prompts_asked}) == 3


@pytest.mark.parametrize(("expected", "malformed_share"), [("tags", 1 / 3), ("tags_and_answer", 2 / 3)])
def test_a_question_without_an_answer_is_malformed_if_the_reward_s_format_says_so(
    grader: Grader, expected: QuestionFormat, malformed_share: float
) -> None:
    job = challenger_job()
    job = replace(job, reward=job.reward.model_copy(update={"format": expected}))
    rollouts = completions_of([r"<question>a</question> \boxed{1}", "<question>b c</question>", "d"])

    def ask(prompts: Sequence[Prompt]) -> list[list[Reply]]:
        return [[Reply(r"\boxed{1}", 5, "stop", None, None, "r/0", 0)] * prompt.n for prompt in prompts]

    rewarded = challenger_reward(job, Ranks(), 1, [rollouts], grader=grader, ask=ask)
    assert rewarded.metrics["malformed_share"] == pytest.approx(malformed_share)


def test_a_step_with_malformed_questions_only_asks_no_solver(grader: Grader) -> None:
    def ask(prompts: Sequence[Prompt]) -> list[list[Reply]]:
        assert not prompts
        return []

    rewarded = challenger_reward(challenger_job(), Ranks(), 1, [completions_of(["x", "y"])], grader=grader, ask=ask)
    assert rewarded.groups[0].rewards.tolist() == [0, 0]
    assert rewarded.metrics == {"malformed_share": 1}
