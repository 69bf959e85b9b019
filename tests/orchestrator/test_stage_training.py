"""What a training gets, its questions with labels and truths, and what is stored of it: metrics and rollouts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from sqlalchemy import text

from core.methods import Method
from core.methods.rent import Rent
from core.methods.rzero import RZero
from core.methods.scrl import Scrl
from core.settings.config import CoEvolution, Replay, RunConfig
from core.settings.training import Labelled
from core.types import Scored, StageKey, question_key
from core.worlds import solve
from orchestrator.stages.context import StageError
from orchestrator.stages.training.metrics import labelled_metrics, replace_metrics, store_step
from orchestrator.stages.training.questions import questions_of
from orchestrator.stages.training.rollouts import StoredTraining, store_rollouts
from storage import queries
from storage.files.texts import read_texts, training_texts_paths
from storage.queries.training_rollouts import Training
from storage.session import Store
from tests.synthetic_run import CONFIG, context_of, create, label, vote_of
from trainers.rollouts import Content, Sample, folder_in, write_step

RUN = "trained"


def config_of(method: Method) -> RunConfig:
    return CONFIG.model_copy(update={"solver": CONFIG.solver.model_copy(update={"reward": method})})


def truths(store: Store, method: Method) -> list[str | None]:
    config = config_of(method)
    with store.write() as session:
        create(session, method.type, config)
        texts = ["What is 2 + 3?", "What is 4 + ?"]  # the second question is ill-posed
        label(session, method.type, 1, [(text, vote_of(("6", 6), ("5", 4))) for text in texts], config)
    questions = questions_of(context_of(store, method.type, 1, config=config))
    assert [question.label for question in questions] == ["6", "6"]
    return [question.truth for question in questions]


@pytest.mark.parametrize(
    ("method", "expected"),
    [(Scrl(), ["5", "no answer"]), (RZero(), [None, None]), (Rent(), [None, None])],
    ids=["labels made in training are compared with the exact oracle", "none are made", "none are needed"],
)
def test_only_a_training_that_makes_labels_gets_truths(
    sqlite: Store, method: Method, expected: list[str | None]
) -> None:
    assert truths(sqlite, method) == expected


def test_an_iteration_without_a_kept_question_cannot_train(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "none", CONFIG)
    with pytest.raises(StageError, match="kept"):
        questions_of(context_of(sqlite, "none", 1))


REPLAYED = [(1, "6", 4), (2, "7", 4)]  # iteration, label, questions


@pytest.mark.parametrize(
    ("replay", "expected"),
    [
        (None, {3: 6}),
        (Replay(share=0.25), {3: 6, 1: 1, 2: 1}),  # 2 of 8; which ones, the seed says
        (Replay(share=0.5), {3: 6, 1: 3, 2: 3}),
        (Replay(share=0.9), {3: 6, 1: 4, 2: 4}),  # there are no more
        (Replay(share=0.9, iterations=1), {3: 6, 2: 4}),
    ],
)
def test_questions_of_earlier_iterations_are_replayed_with_the_labels_that_they_had(
    sqlite: Store, replay: Replay | None, expected: dict[int, int]
) -> None:
    config = CONFIG.model_copy(update={"dataset": CONFIG.dataset.model_copy(update={"replay": replay})})
    with sqlite.write() as session:
        create(session, "replays", config)
        for iteration, answer, count in (*REPLAYED, (3, "8", 6)):
            texts = [f"What is {iteration} + {i}?" for i in range(count)]
            label(session, "replays", iteration, [(text, vote_of((answer, 6), ("5", 4))) for text in texts], config)
    context = context_of(sqlite, "replays", 3, config=config)
    questions = questions_of(context)
    found = Counter(question_key(question.question_id)[1] for question in questions)
    assert found.total() == sum(expected.values())
    assert found[3] == 6
    if replay is None or replay.share == 0.9:
        assert found == expected
    labels = {1: "6", 2: "7", 3: "8"}
    assert all(question.label == labels[question_key(question.question_id)[1]] for question in questions)
    assert questions == questions_of(context)
    assert len({question.question_id for question in questions}) == len(questions)


def test_the_labels_of_the_exact_control_are_right_and_ill_posed_questions_have_none(sqlite: Store) -> None:
    config = CONFIG.model_copy(update={"dataset": CONFIG.dataset.model_copy(update={"labels": "exact"})})
    with sqlite.write() as session:
        create(session, "exact", config)
        label(
            session, "exact", 1, [(text, vote_of(("6", 6), ("5", 4))) for text in ("What is 2 + 3?", "4 + ?")], config
        )
    questions = questions_of(context_of(sqlite, "exact", 1, config=config))
    assert [(question.text, question.label, question.truth) for question in questions] == [
        ("What is 2 + 3?", "5", None)
    ]


@pytest.mark.parametrize(("share", "labels"), [(0, ["6", "6", "6"]), (0.34, ["6", "5", "6"]), (0.67, ["6", "5"])])
def test_true_labels_are_bought_where_the_votes_let_expect_most_of_them(
    sqlite: Store, share: float, labels: list[str]
) -> None:
    """The second question has the smallest majority, and the third has no answer: whoever buys that learns so."""
    config = CONFIG.model_copy(update={"dataset": CONFIG.dataset.model_copy(update={"bought": share})})
    votes = {"What is 1 + 1?": 7, "What is 2 + 3?": 5, "What is 4 + ?": 6}
    rows = [(text, vote_of(("6", count), ("5", 10 - count))) for text, count in votes.items()]
    with sqlite.write() as session:
        create(session, "bought", config)
        label(session, "bought", 1, rows, config)
    questions = questions_of(context_of(sqlite, "bought", 1, config=config))
    assert [question.label for question in questions] == labels


@pytest.mark.parametrize(
    ("changes", "at_fault"),
    [
        ({"dataset": {"labels": "exact"}, "base_model": "models/Qwen3-4B-Base"}, "labels"),
        ({"dataset": {"bought": 0.1}, "base_model": "models/Qwen3-4B-Base"}, "bought"),
        ({"challenger": {"source": "world"}}, "challenger"),
        ({"challenger": {"source": "world", "trained": False}, "base_model": "models/Qwen3-4B-Base"}, "source"),
    ],
)
def test_a_program_that_knows_needs_its_world(changes: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(ValidationError, match=at_fault):
        CoEvolution.model_validate(changes)


def test_labelled_questions_are_drawn_anew_in_each_iteration(sqlite: Store) -> None:
    labelled = Labelled(file="micro", limit=50, share=0.25)
    config = CONFIG.model_copy(update={"labelled": labelled})
    assert ([planned.table for planned in config.trainings], config.has_branch) == (["challenger", "solver"], False)
    with sqlite.write() as session:
        create(session, "anchors", config)
        for iteration in (1, 2):
            texts = [f"What is {iteration} + {i}?" for i in range(9)]
            label(session, "anchors", iteration, [(text, vote_of(("6", 6), ("5", 4))) for text in texts], config)
    first, second = (questions_of(context_of(sqlite, "anchors", t, config=config)) for t in (1, 2))
    anchors = [[q for q in questions if q.question_id.startswith("labelled/")] for questions in (first, second)]
    assert [len(of) for of in anchors] == [3, 3]
    assert [len(questions) for questions in (first, second)] == [12, 12]
    assert all(question.label == question.truth == str(solve(question.text)) for of in anchors for question in of)
    assert anchors[0] != anchors[1]


@pytest.mark.parametrize("other", [{"chained": True}, {"steps": 3}])
def test_anchors_have_no_training_of_their_own(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="share: expected none"):
        Labelled(file="micro", limit=50, share=0.25, **other)


def rewards(store: Store) -> dict[tuple[int, str], float | None]:
    with store.read() as session:
        rows = queries.figures.train_metrics_of(session, RUN, iteration=1, role="solver")
    return {(row.step, row.name): row.value for row in rows if row.name != "step"}


def steps(*values: float) -> list[dict[str, float]]:
    return [{"step": float(step), "reward_mean": value} for step, value in enumerate(values, 1)]


def test_each_step_is_stored_as_it_ends_and_the_result_replaces_what_was_cut_off(store: Store) -> None:
    with store.write() as session:
        create(session, RUN)
        replace_metrics(session, StageKey(RUN, 1, "train_challenger"), "challenger", steps(9.0))
    context = context_of(store, RUN, 1)
    seen = []
    for metrics in steps(0.1, 0.2, 0.3):  # an attempt that is killed after three steps
        store_step(context, "solver", metrics)
        seen.append(len(rewards(store)))
    assert seen == [1, 2, 3]
    store_step(context, "solver", steps(0.1, 0.25)[1])  # it goes on after its step 1, on a GPU
    assert rewards(store) == {(1, "reward_mean"): 0.1, (2, "reward_mean"): 0.25}
    with store.write() as session:
        replace_metrics(session, StageKey(RUN, 1, "train_solver"), "solver", steps(0.1, 0.2))
    assert rewards(store) == {(1, "reward_mean"): 0.1, (2, "reward_mean"): 0.2}
    with store.read() as session:
        assert len(queries.figures.train_metrics_of(session, RUN, role="challenger", name="reward_mean")) == 1


def test_the_steps_of_a_branch_follow_those_of_the_solver_and_leave_them(store: Store) -> None:
    with store.write() as session:
        create(session, RUN)
        replace_metrics(session, StageKey(RUN, 1, "train_solver"), "solver", steps(0.1, 0.2))
        branch = labelled_metrics(steps(0.7), steps_before=2)
        replace_metrics(session, StageKey(RUN, 1, "train_labelled"), "solver", branch, after=2)
    of_solver = {(1, "reward_mean"): 0.1, (2, "reward_mean"): 0.2}
    assert rewards(store) == {**of_solver, (3, "labelled_reward_mean"): 0.7}


def test_a_training_goes_on_if_a_step_cannot_be_stored(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, RUN)
    context = context_of(sqlite, RUN, 1)
    with sqlite.write() as session:
        session.execute(text("ALTER TABLE train_metrics RENAME TO renamed"))
    store_step(context, "solver", steps(0.1)[0])


def train(work_dir: Path, steps: int) -> StoredTraining:
    """What a trainer hands back of a training with two prompts, the second of which is dropped, at every step."""
    for step in range(1, steps + 1):
        groups = [Scored("3", np.array([1.0, 0.0])), Scored(None, np.zeros(2), learn=False)]
        contents = [[Content(f"{RUN}/1/{prompt}", "1 + 2?", "3", True)] * 2 for prompt in (0, 1)]
        samples = [
            [Sample(f"{work_dir.name} {step}.{prompt}.{i}", 7, "stop", 0.5, None if prompt else 1.0) for i in (0, 1)]
            for prompt in (0, 1)
        ]
        write_step(folder_in(work_dir), step, [0, 1], groups, contents, samples)
    return StoredTraining(work_dir, steps)


@pytest.mark.parametrize(("keep", "prompts"), [("none", set()), ("kept", {0}), ("all", {0, 1})])
def test_the_setting_decides_which_texts_are_kept_and_all_rows_are(
    sqlite: Store, tmp_path: Path, keep: str, prompts: set[int]
) -> None:
    config = CONFIG.model_copy(update={"rollout_text": keep})
    with sqlite.write() as session:
        create(session, RUN, config)
    context, training = context_of(sqlite, RUN, 1, config=config, home=tmp_path), train(tmp_path / "solver", 2)
    labelled = train(tmp_path / "labelled", 1)
    chained = StoredTraining(labelled.work_dir, labelled.steps, steps_before=2)
    for _ in range(2):  # the second time as after a crash between the texts and the rows
        add_rows = store_rollouts(context, "solver", [training, chained])
    with sqlite.write() as session:
        add_rows(session)
        rows = queries.training_rollouts.list_rollouts(session, Training(RUN, 1, "solver"))
    assert [(row.step, row.prompt, row.rollout) for row in rows] == [
        (step, prompt, rollout) for step in (1, 2, 3) for prompt in (0, 1) for rollout in (0, 1)
    ]
    texts = {
        (row.question_id, row.sample_index): row.text
        for row in read_texts(training_texts_paths(context.run.home.texts, RUN, 1, "solver")[0])
    }
    names = {1: "solver 1", 2: "solver 2", 3: "labelled 1"}
    assert texts == {
        (row.prompt_key, row.rollout): f"{names[row.step]}.{row.prompt}.{row.rollout}"
        for row in rows
        if row.prompt in prompts
    }
