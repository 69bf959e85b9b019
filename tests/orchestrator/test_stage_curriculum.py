"""Which given prompts are trained on: a curriculum (SRT 5.3), compared with values by hand."""

from __future__ import annotations

import pytest

from core.questions.voting import vote
from core.settings.config import SelfTraining
from core.settings.parsing import parse_config
from core.types import LabelledQuestion, Question, Rollout, question_id
from orchestrator.stages.training.curriculum import given_questions
from storage import queries
from storage.session import Store
from tests.synthetic_run import context_of, create

# A prompt's true answer and its four votes. Majorities: none, 4/4 for 5, 3/4 for 9, 2/4 for 1/2. Pass rates: 0; 0; 1/4;
# 2/4, since 0.5 and 0.50 are 1/2.
PROMPTS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("2", (None, None, None, None)),
    ("6", ("5", "5", "5", "5")),
    ("8", ("9", "9", "9", "8")),
    ("1/2", ("0.5", "0.50", "7", "6")),
)


def chosen(store: Store, **prompts: object) -> list[tuple[str, str | None, str | None]]:
    """The text, the label and the truth of each prompt that is trained on."""
    tree = {"prompts": {"file": "micro", "limit": 4, **prompts}}
    method = {"solver": {"reward": {"type": "srt", "labels": "offline"}}}
    with store.write() as session:
        config = parse_config({**tree, **method}, "a test")
        assert isinstance(config, SelfTraining)
        create(session, "r", config)
        for index, (truth, votes) in enumerate(PROMPTS):
            key, text = question_id("r", 0, index), f"prompt {index}"
            queries.questions.add_questions(session, [Question(key, "r", 0, index, text, text, None, 0, truth)])
            queries.questions.add_labels(session, [LabelledQuestion(key, text, vote(votes, None), "kept")])
            rows = [Rollout(key, j, "", answer, 7, "stop", None, None, "r/base/0", j) for j, answer in enumerate(votes)]
            queries.questions.add_rollouts(session, rows)
    return [(row.text, row.label, row.truth) for row in given_questions(context_of(store, "r", 1), config.prompts)]


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        # Two of the four prompts, with their given labels.
        ({"labels": "given", "easiest_by": "majority"}, [("prompt 1", "6", "6"), ("prompt 2", "8", "8")]),
        ({"labels": "given", "easiest_by": "pass_rate"}, [("prompt 2", "8", "8"), ("prompt 3", "1/2", "1/2")]),
        # Two of the three prompts that have a majority, with its answer.
        ({"labels": "offline", "easiest_by": "majority"}, [("prompt 1", "5", "6"), ("prompt 2", "9", "8")]),
        ({"labels": "offline", "easiest_by": "pass_rate"}, [("prompt 2", "9", "8"), ("prompt 3", "0.5", "1/2")]),
    ],
)
def test_the_easiest_half_of_the_prompts_is_chosen_by_majority_or_pass_rate(
    sqlite: Store, prompts: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    assert chosen(sqlite, easiest=0.5, **prompts) == expected


def test_without_a_curriculum_all_prompts_with_a_label_are_trained_on(sqlite: Store) -> None:
    assert [text for text, *_ in chosen(sqlite, labels="offline")] == ["prompt 1", "prompt 2", "prompt 3"]
