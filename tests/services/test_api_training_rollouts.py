"""The rollouts of a training over REST: the best and the worst, page by page, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_examples import QUESTIONS, RUN, training_rollouts
from fastapi.testclient import TestClient

from core.types import OracleLabel, OracleVerdict, Question, Role
from storage import queries
from storage.files.texts import RolloutText, TextWriter, training_texts_paths
from storage.queries.training_rollouts import Training
from storage.session import Store
from tests.api_server import api_of, get

TRAINING = f"/runs/{RUN}/training/solver/1"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return tmp_path / "texts"


@pytest.fixture
def api(filled: Store, tmp_path: Path, texts: Path) -> TestClient:
    return api_of(filled, tmp_path, texts=texts)


def keys(items: Sequence[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(item["step"], item["prompt"], item["rollout"]) for item in items]


def test_the_worst_rollouts_of_a_step_come_first_and_pages_follow(api: TestClient) -> None:
    first = get(api, f"{TRAINING}/rollouts", step=1, sort="reward", limit=3)
    rest = get(api, f"{TRAINING}/rollouts", step=1, sort="reward", limit=3, after=first["next"])
    assert keys(first["items"] + rest["items"]) == [(1, 0, 1), (1, 1, 1), (1, 0, 0), (1, 1, 0)]
    assert rest["next"] is None
    worst = first["items"][0]
    shown = {name: worst[name] for name in ("question", "answer", "agrees", "reward", "parts", "advantage")}
    assert shown == {
        "question": QUESTIONS[0][0],
        "answer": None,
        "agrees": False,
        "reward": 0.0,
        "parts": {"bonus": 0.25},
        "advantage": -0.5,
    }


def test_those_that_were_rewarded_although_wrong_are_found_where_an_oracle_graded_the_label(
    api: TestClient, store: Store
) -> None:
    """The oracle calls the label "3" of prompt 0 right and that of prompt 1 wrong."""
    right, wrong = (replace(training_rollouts()[prompt], step=3, reward=0.2) for prompt in (0, 2))
    others = [
        replace(right, rollout=1, answer="9", agrees=False),
        replace(right, rollout=2, answer="9", agrees=False, reward=0.0),
        replace(wrong, rollout=1, answer="9", agrees=False),  # may be right
        replace(wrong, rollout=2, label="4", answer="4"),  # no pseudo-label, so nobody graded it
        replace(wrong, rollout=3, label=None, agrees=None),
    ]
    with store.write() as session:
        queries.training_rollouts.add(session, Training(RUN, 1, "solver"), [right, wrong, *others])
    listed = get(api, f"{TRAINING}/rollouts", rewarded_wrong=True)["items"]
    assert keys(listed) == [(1, 1, 0), (2, 1, 0), (3, 0, 1), (3, 1, 0)]
    first = get(api, f"{TRAINING}/rollouts", rewarded_wrong=True, sort="reward", limit=1)
    assert keys(first["items"]) == [(3, 0, 1)]
    rest = get(api, f"{TRAINING}/rollouts", rewarded_wrong=True, sort="reward", after=first["next"])
    assert keys(rest["items"]) == [(3, 1, 0), (1, 1, 0), (2, 1, 0)]


def test_a_rewarded_answer_is_compared_with_the_one_that_came_with_the_prompt(api: TestClient, store: Store) -> None:
    key, training = f"{RUN}/1/000900", Training(RUN, 1, "solver")
    rows = [
        replace(training_rollouts()[0], step=4, rollout=i, question_id=key, label="2", reward=reward, answer=answer)
        for i, (answer, reward) in enumerate([("0.50", 1.0), ("2", 1.0), ("2", 0.0), (None, 1.0), ("x+1", 1.0)])
    ]
    given = Question(key, RUN, 1, 900, "q", "q", None, 1, "\\frac{1}{2}")
    with store.write() as session:
        queries.questions.add_questions(session, [given])
        queries.training_rollouts.add(session, training, rows)
    assert keys(get(api, f"{TRAINING}/rollouts", rewarded_wrong=True, step=4)["items"]) == [(4, 0, 1)]


@pytest.mark.parametrize(("verdict", "graded"), [("right", True), ("unknown", False)])
def test_a_page_says_whether_anything_is_known_about_the_answers(
    store: Store, api: TestClient, verdict: OracleVerdict, graded: bool
) -> None:
    key = f"{RUN}/2/000000"
    with store.write() as session:
        row = replace(training_rollouts()[0], question_id=key)
        queries.training_rollouts.add(session, Training(RUN, 2, "solver"), [row])
        queries.questions.add_oracle_labels(session, [OracleLabel(key, "judge", verdict, None)])
    assert get(api, f"/runs/{RUN}/training/solver/2/rollouts")["graded"] is graded


def test_a_question_s_rollouts_are_listed_across_steps(api: TestClient) -> None:
    page = get(api, f"{TRAINING}/rollouts", question=f"{RUN}/1/000001")
    assert keys(page["items"]) == [(1, 1, 0), (1, 1, 1), (2, 1, 0), (2, 1, 1)]
    assert keys(get(api, f"{TRAINING}/rollouts", prompt=0, step=2)["items"]) == [(2, 0, 0), (2, 0, 1)]


def test_the_steps_have_the_figures_of_their_rollouts(api: TestClient) -> None:
    figures = {"prompts": 2, "rollouts": 4, "trained_on": 2, "reward_mean": 0.5, "reward_min": 0.0, "reward_max": 1.0}
    assert get(api, f"{TRAINING}/steps") == [{"step": step, **figures} for step in (1, 2)]
    assert get(api, f"/runs/{RUN}/training/challenger/1/steps") == []


@pytest.mark.parametrize(("role", "number"), [("solver", 0), ("solver", 1)])
def test_a_rollout_has_its_text_if_one_of_the_role_s_stages_kept_it(
    api: TestClient, texts: Path, role: Role, number: int
) -> None:
    row = training_rollouts()[5]
    key = f"{row.step}/{row.prompt}/{row.rollout}"
    assert get(api, f"{TRAINING}/rollouts/{key}")["text"] is None
    writer = TextWriter(training_texts_paths(texts, RUN, 1, role)[number])
    writer.add(0, [RolloutText(row.prompt_key, row.rollout, "so \\boxed{3}"), RolloutText(row.prompt_key, 0, "other")])
    writer.finish()
    shown = get(api, f"{TRAINING}/rollouts/{key}")
    assert (shown["text"], shown["reward"], keys([shown])) == ("so \\boxed{3}", 0.0, [(2, 0, 1)])
