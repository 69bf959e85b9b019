"""What `admit_questions` stores: which gate refused which question, statistics, and the gates' states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.types import Question, Role, question_id
from orchestrator.installation.home import Home
from orchestrator.runs import prepare
from orchestrator.stages.admit_questions import admit_questions
from orchestrator.stages.context import StageError
from orchestrator.stages.label_questions import label_questions
from orchestrator.stages.training.questions import questions_of
from storage import queries
from storage.session import Store
from tests.fake_applications import fake_applications
from tests.synthetic_run import context_of, finish, stored

# Of four votes two are for the right answer, one each for others; the last is a tie.
FIRM, TIE = ["\\boxed{3}", "\\boxed{3}", "\\boxed{4}", "no idea"], ["\\boxed{3}", "\\boxed{3}", *["\\boxed{4}"] * 2]
REPLIES = {
    "What is 1 + 2?": FIRM,
    "What is 1 + ?": FIRM,
    "What is 2 + 1?": TIE,
    "What is 0 + 3?": ["\\boxed{3}"] * 4,
}
GATES = [{"type": "lead"}, {"type": "valid"}]


def label(store: Store, home: Path, replies: Mapping[str, Sequence[str]], t: int = 1) -> None:
    """Store questions with these votes, and label them; the last question is malformed."""
    texts = [*replies, None]
    with store.write() as session:
        keys = [question_id("a", t, i) for i in range(len(texts))]
        questions = [Question(keys[i], "a", t, i, text, "", "a/base/0", i) for i, text in enumerate(texts)]
        queries.questions.add_questions(session, questions)
    with fake_applications(replies) as (services, _):
        stored_stage(store, home, label_questions, t, services=services)


def add_checkpoint(store: Store, t: int, role: Role = "solver", parent: int | None = None) -> None:
    """Store a checkpoint of iteration t whose files are those of the base model; `parent` is a Solver's iteration."""
    with store.write() as session:
        base = queries.checkpoints.get_checkpoint(session, "a/base/0")
        before = f"a/solver/{parent}" if parent else base.id
        made = replace(base, id=f"a/{role}/{t}", role=role, iteration=t, parent=before)
        queries.checkpoints.add_checkpoint(session, made, {})


@pytest.fixture
def labelled(sqlite: Store, tmp_path: Path) -> Store:
    """A run with two gates, whose questions have been labelled."""
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.votes": 4, "dataset.gates": GATES})
    label(sqlite, tmp_path, REPLIES)
    return sqlite


def stored_stage(store: Store, home: Path, stage: Any, t: int = 1, **services: Any) -> dict[str, Any]:
    """Run a stage to its end, and mark it done."""
    result = stored(context_of(store, "a", t, home=home, **services), stage)
    with store.write() as session:
        finish(session, "a", t, stage.__name__, result, 1)
    return result


def test_a_refused_question_has_the_gate_that_refused_it(labelled: Store, tmp_path: Path) -> None:
    with labelled.read() as session:
        assert queries.figures.filter_stats_of(session, "a") == {}
        assert not queries.questions.all_labelled(session, "a", 1)
    result = stored_stage(labelled, tmp_path, admit_questions)
    assert {name: (gate["candidates"], gate["refused"]) for name, gate in result["gates"].items()} == {
        "lead": (3, 1),
        "valid": (2, 1),
    }
    with labelled.read() as session:
        labels = queries.questions.labels_of(session, "a", 1)
        assert [(row.verdict, row.gate) for row in labels] == [
            ("kept", None),
            ("refused", "valid"),
            ("refused", "lead"),
            ("too_easy", None),
            ("malformed", None),
        ]
        stats = queries.figures.filter_stats_of(session, "a")[1]
        assert (stats.candidates, stats.kept, stats.refused) == (5, 1, 2)
        assert (result["kept"], result["candidates"]) == (1, 3)
        assert queries.questions.all_labelled(session, "a", 1)
        assert queries.questions.labelled_iterations(session, "a") == [1]
    assert [row.text for row in questions_of(context_of(labelled, "a", 1, home=tmp_path))] == ["What is 1 + 2?"]


def test_a_stage_that_is_run_twice_stores_the_same(labelled: Store, tmp_path: Path) -> None:
    first = admit_questions(context_of(labelled, "a", 1, home=tmp_path))
    second = stored_stage(labelled, tmp_path, admit_questions)
    with labelled.write() as session:
        assert first(session) == second


def test_a_run_whose_gates_refuse_all_questions_ends_with_an_error(labelled: Store, tmp_path: Path) -> None:
    with labelled.write() as session:
        queries.questions.refuse_labels(session, {f"a/1/{i:06d}": "lead" for i in range(5)})
    with pytest.raises(StageError, match="gates refused all 3"):
        questions_of(context_of(labelled, "a", 1, home=tmp_path))


@pytest.mark.parametrize("shared", [False, True])
def test_a_state_goes_on_with_the_solver(sqlite: Store, tmp_path: Path, shared: bool) -> None:
    """In each iteration, all votes on two questions of each level agree, so that one level opens in each."""
    gate = {"type": "ratchet", "groups": 2, "start": 0}
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.votes": 4, "dataset.gates": [gate], "shared": shared})

    def level_of(t: int, level: int) -> int:
        if shared:  # C(t) votes, whose iteration has no state yet
            add_checkpoint(sqlite, t, "challenger")
        replies = {f"What is {i}{' + 1' * level}?": ["\\boxed{9}"] * 4 for i in range(2)}
        label(sqlite, tmp_path, replies, t)
        state = stored_stage(sqlite, tmp_path, admit_questions, t)["gates"]["ratchet"]["state"]
        add_checkpoint(sqlite, t)
        return int(state["level"])

    assert [level_of(1, 0), level_of(2, 1)] == [1, 2]
    with sqlite.write() as session:  # to S(1), so that the level is 1 again
        finish(session, "a", 2, "check_health", {"action": "roll_back", "back_to": {"solver": "a/solver/1"}}, 1)
    assert [level_of(3, 2), level_of(4, 1)] == [1, 2]
