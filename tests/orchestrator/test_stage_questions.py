"""What `generate_questions` and `label_questions` store of the replies of fake applications."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from core.settings.templates import CHALLENGER_USER
from core.types import Question, Spent, question_id
from orchestrator.costs import BudgetSpent
from orchestrator.installation.home import MICRO_MODEL, Home
from orchestrator.runs import prepare
from orchestrator.stages.generate_questions import generate_questions
from orchestrator.stages.label_questions import label_questions
from services.inference.engines.base import Prompt
from services.inference.openai_api import ChatRequest
from storage import queries
from storage.files.texts import RolloutText, read_texts, texts_path
from storage.session import Store
from tests.fake_applications import fake_applications
from tests.synthetic_run import context_of, stored

# Of four votes two are for 3 (p_hat 1/2, in the band 1/4 to 3/4), all four for 7, and none for the third question.
REPLIES = {
    "What is 1 + 2?": ["It is \\boxed{3}.", "\\boxed{4}", "\\boxed{3}", "no idea"],
    "What is 3 + 4?": ["\\boxed{7}"] * 4,
    "What is x?": ["no idea"] * 4,
}
VERDICTS = ["kept", "too_easy", "no_majority", "malformed"]


def add_questions(store: Store, *texts: str | None) -> list[str]:
    """Questions of the run's first iteration; returns their ids."""
    keys = [question_id("a", 1, index) for index in range(len(texts))]
    with store.write() as session:
        questions = [Question(keys[i], "a", 1, i, text, "", "a/base/0", i) for i, text in enumerate(texts)]
        queries.questions.add_questions(session, questions)
    return keys


def generated(store: Store, home: Path, replies: list[str]) -> list[Question]:
    """The questions that are stored of a Challenger's replies."""
    with fake_applications({CHALLENGER_USER: replies}) as (services, _):
        stored(context_of(store, "a", 1, home=home, services=services), generate_questions)
    with store.read() as session:
        return queries.questions.questions_of(session, "a", 1)


@pytest.mark.parametrize(("rollout_text", "with_text"), [("none", 0), ("kept", 1), ("all", 3)])
def test_only_the_texts_that_the_run_s_setting_names_are_stored(
    sqlite: Store, tmp_path: Path, rollout_text: str, with_text: int
) -> None:
    """`with_text` is the number of questions whose texts are stored; all votes and labels are stored in any case."""
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"rollout_text": rollout_text, "dataset.votes": 4})
    keys = add_questions(sqlite, *REPLIES, None)
    with fake_applications(REPLIES) as (services, _):
        stored(context_of(sqlite, "a", 1, home=tmp_path, services=services), label_questions)
    with sqlite.read() as session:
        assert [row.verdict for row in queries.questions.labels_of(session, "a", 1)] == VERDICTS
        assert len(queries.questions.rollouts_of(session, "a", 1)) == 12
    answered = zip(keys[:with_text], REPLIES.values(), strict=False)
    expected = [RolloutText(key, sample, text) for key, texts in answered for sample, text in enumerate(texts)]
    assert read_texts(texts_path(tmp_path / "texts", "a", 1, "label_questions")) == expected


def test_a_budget_ends_the_stage_after_a_batch_and_a_larger_one_goes_on(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is one question with four replies of three tokens."""
    monkeypatch.setattr("orchestrator.stages.label_questions.BATCH", 1)
    overrides = {"dataset.votes": 4, "serving.batches": 1, "budget.tokens": 20}
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, overrides)
    add_questions(sqlite, *REPLIES)

    def rows() -> tuple[int, Spent]:
        """The number of votes, and what they took."""
        with sqlite.read() as session:
            votes = queries.questions.rollouts_of(session, "a", 1)
            [used] = [row for row in queries.usage.usage_of(session, "a") if row.purpose == "votes"]
        return len(votes), Spent(used.requests, used.prompt_tokens, used.reply_tokens)

    with fake_applications(REPLIES) as (services, requests):
        with pytest.raises(BudgetSpent, match=r"budget\.tokens: 24 of 20 are spent"):
            label_questions(context_of(sqlite, "a", 1, home=tmp_path, services=services))
        assert rows() == (8, Spent(2, 0, 24))
        prepare(Home(tmp_path), sqlite, "a", "", 0, {"budget.tokens": 37})
        label_questions(context_of(sqlite, "a", 1, home=tmp_path, services=services))
        assert rows() == (12, Spent(3, 0, 36))
    assert len([request for request in requests if "seed" in request]) <= 4
    with sqlite.read() as session:
        held = [row for row in queries.usage.usage_of(session, "a") if row.purpose == "applications"]
    assert held[0].cpu_seconds == pytest.approx(2 * held[0].seconds)  # the fake Solver holds 2 CPUs


@pytest.mark.parametrize("retention", [1.0, 0.8])
def test_each_request_for_questions_has_a_mask_of_its_own(sqlite: Store, tmp_path: Path, retention: float) -> None:
    """The run `b` goes on in the middle of a batch of 128, which it asks for again."""
    settings = {"dataset.candidates": 200, "challenger.vocabulary_retention": retention}
    asked: dict[str, list[Prompt]] = {}
    for run, done in (("a", 0), ("b", 130)):
        prepare(Home(tmp_path), sqlite, run, "demo", 0, settings)
        with sqlite.write() as session:
            before = [Question(question_id(run, 1, i), run, 1, i, "", "", f"{run}/base/0", i) for i in range(done)]
            queries.questions.add_questions(session, before)
        with fake_applications({CHALLENGER_USER: ["no question"] * 64}) as (services, requests):
            stored(context_of(sqlite, run, 1, home=tmp_path, services=services), generate_questions)
        prompts = [ChatRequest.model_validate(request).prompt() for request in requests if "seed" in request]
        asked[run] = sorted(prompts, key=lambda prompt: prompt.seed)
    assert [prompt.n for prompt in asked["a"]] == [64, 64, 64, 8]
    assert asked["b"] == asked["a"][2:]
    dropouts = {prompt.dropout for prompt in asked["a"]}
    assert {dropout.retention for dropout in dropouts if dropout} == ({0.8} if retention < 1 else set())
    assert len(dropouts) == (4 if retention < 1 else 1)


@pytest.mark.parametrize(
    ("settings", "questions"),
    [
        ({"challenger.reward.format": "tags"}, ["How many boxes?", "Find x.", "What is 3?", None]),
        ({"challenger.reward.format": "tags_and_answer"}, ["How many boxes?", None, "What is 3?", None]),
        ({"dataset.refused_texts": ["Box", "find"]}, [None, None, "What is 3?", None]),
    ],
)
def test_the_run_s_settings_say_which_candidate_is_malformed(
    sqlite: Store, tmp_path: Path, settings: dict[str, Any], questions: list[str | None]
) -> None:
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.candidates": 4, **settings})
    replies = [
        "<question>How many boxes?</question> \\boxed{2}",
        "<question>Find x.</question>",
        "a box of <question>What is 3?</question> \\boxed{3}",
        "What is 4? \\boxed{4}",
    ]
    asked = generated(sqlite, tmp_path, replies)
    assert [(question.text, question.raw) for question in asked] == [*zip(questions, replies, strict=True)]


@pytest.mark.parametrize(
    ("token", "questions"), [("(turn)", [None, "What is 3?"]), (None, ["2 (TURN) 3?", "What is 3?"])]
)
def test_a_question_with_a_control_token_of_the_solver_at_hand_is_malformed(
    sqlite: Store, tmp_path: Path, token: str | None, questions: list[str | None]
) -> None:
    """No family of models is known to have this token."""
    folder = tmp_path / "model"
    shutil.copytree(MICRO_MODEL, folder)
    if token is not None:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.add_special_tokens({"additional_special_tokens": [token]})
        tokenizer.save_pretrained(folder)
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.candidates": 2, "base_model": str(folder)})
    replies = ["<question>2 (TURN) 3?</question> \\boxed{2}", "<question>What is 3?</question> \\boxed{3}"]
    assert [question.text for question in generated(sqlite, tmp_path, replies)] == questions
