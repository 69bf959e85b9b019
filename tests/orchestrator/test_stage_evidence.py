"""What `admit_questions` asks for the gates, what it stores of it, and that it asks nothing twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core import worlds
from core.challenger.gates import Evidence
from core.types import OracleLabel, question_id, question_key
from orchestrator.costs import BudgetSpent
from orchestrator.installation.home import Home
from orchestrator.runs import prepare
from orchestrator.stages.admit_questions import admit_questions
from orchestrator.stages.context import StageError
from orchestrator.stages.training.questions import questions_of
from storage import queries
from storage.session import Store
from tests.fake_applications import answering
from tests.fake_judge import chat_completion, correct_reply, judge_with
from tests.fake_service import fake_service
from tests.orchestrator.test_stage_admit_questions import add_checkpoint, label, stored_stage
from tests.synthetic_run import context_of

# The Solver's votes: 6 of 10 for an answer, which is right for the first question only.
VOTED = {"What is 1 + 2?": 3, "What is 2 + 3 + 4?": 8, "What is 5 - 3?": 3}
REPLIES = {text: [f"\\boxed{{{answer}}}"] * 6 + ["no idea"] * 4 for text, answer in VOTED.items()}


def prepared(store: Store, home: Path, gate: dict[str, Any], t: int = 3) -> None:
    """A run with a gate, whose questions of iteration t are labelled; it has a Solver of each iteration before."""
    prepare(Home(home), store, "a", "demo", 0, {"dataset.gates": [gate], "serving.batches": 1})
    for earlier in range(1, t):
        add_checkpoint(store, earlier, parent=earlier - 1)
    label(store, home, REPLIES, t)


def admitted(
    store: Store, home: Path, texts_of: Callable[[dict[str, Any]], Sequence[str]], t: int = 3
) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Question -> the gate that refused it; None: it was kept. Also the stage's result."""
    with answering(texts_of) as services:
        result = stored_stage(store, home, admit_questions, t, services=services)
    with store.read() as session:
        rows = queries.questions.labels_of(session, "a", t)
    return {row.text: row.gate for row in rows if row.text is not None}, result


def evidence(store: Store, gate: str, t: int = 3) -> list[Evidence]:
    with store.read() as session:
        told = queries.questions.evidence_of(session, "a", t, gate)
    return [row for key in sorted(told) for row in told[key]]


def by_checkpoint(answers: Mapping[str, Mapping[str, int]]) -> Callable[[dict[str, Any]], list[str]]:
    """Every sample of a checkpoint has the answer that it gives to the question; without one, it has no idea."""

    def texts_of(body: dict[str, Any]) -> list[str]:
        message = body["messages"][-1]["content"]
        known = answers.get(body["policy_version"], {})
        answer = next((answer for text, answer in known.items() if text in message), None)
        return ["no idea" if answer is None else f"\\boxed{{{answer}}}"] * body["n"]

    return texts_of


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"earlier": 1}, ["What is 2 + 3 + 4?"]),
        ({"earlier": 2, "agree": 2}, ["What is 2 + 3 + 4?", "What is 5 - 3?"]),
        ({"earlier": 2}, []),
        ({"earlier": 9, "agree": 9}, ["What is 2 + 3 + 4?", "What is 5 - 3?"]),  # there are no more
    ],
)
def test_other_solvers_must_agree(sqlite: Store, tmp_path: Path, settings: dict[str, int], refused: list[str]) -> None:
    """S(2) has voted. S(1) differs on the second question, and the base model on the third."""
    prepared(sqlite, tmp_path, {"type": "solvers", "votes": 4, **settings})
    answers = {"a/solver/1": {**VOTED, "What is 2 + 3 + 4?": 9}, "a/base/0": {**VOTED, "What is 5 - 3?": 2}}
    of_each, result = admitted(sqlite, tmp_path, by_checkpoint(answers))
    assert [text for text, gate in of_each.items() if gate] == refused
    asked = evidence(sqlite, "solvers")
    voters = {"a/solver/1", "a/base/0"} if settings["earlier"] > 1 else {"a/solver/1"}
    assert {row.voter for row in asked} == voters
    assert all(len(row.answers) == 4 and row.question is None for row in asked)
    assert result["gates"]["solvers"]["metrics"]["undecided"] == 0


def test_in_the_first_iteration_there_is_no_other_solver(sqlite: Store, tmp_path: Path) -> None:
    prepared(sqlite, tmp_path, {"type": "solvers"}, t=1)
    of_each, result = admitted(sqlite, tmp_path, by_checkpoint({}), t=1)
    assert {*of_each.values()} == {None}
    assert result["gates"]["solvers"]["metrics"] == {"undecided": 0}


def test_a_solver_whose_files_were_removed_cannot_be_asked(sqlite: Store, tmp_path: Path) -> None:
    prepared(sqlite, tmp_path, {"type": "solvers"})
    with sqlite.write() as session:
        queries.checkpoints.note_removed(session, ["a/solver/1"])
    with pytest.raises(StageError, match=r"dataset\.gates: solvers .* a/solver/1"):
        admitted(sqlite, tmp_path, by_checkpoint({}))


def test_another_form_must_get_the_same_answer(sqlite: Store, tmp_path: Path) -> None:
    """A Solver that solves every question: it gives the label again only where that is right."""
    prepared(sqlite, tmp_path, {"type": "reordered", "votes": 3})
    asked = list[str]()

    def texts_of(body: dict[str, Any]) -> list[str]:
        asked.append(body["messages"][-1]["content"])
        question = re.search(r"What is [^?]*\?", asked[-1])
        return [f"\\boxed{{{worlds.solve(question[0] if question else '')}}}"] * body["n"]

    of_each, result = admitted(sqlite, tmp_path, texts_of)
    # "5 - 3" has no other order that begins with a number.
    assert of_each == {"What is 1 + 2?": None, "What is 2 + 3 + 4?": "reordered", "What is 5 - 3?": None}
    assert result["gates"]["reordered"]["metrics"] == {"untested": pytest.approx(1 / 3), "undecided": 0}
    rows = {row.question_id: row for row in evidence(sqlite, "reordered")}
    assert [(row.question, row.answers) for row in rows.values()][::2] == [("What is 2 + 1?", ("3",) * 3), (None, ())]
    assert {row.voter for row in rows.values()} == {"a/solver/2"}
    assert len(asked) == 2
    assert not any(text in question for text in VOTED for question in asked)


@pytest.mark.parametrize(
    ("reply", "form"),
    [
        ("Here it is: <question>How much is x?</question>", "How much is x?"),
        ("How much is x?", None),  # not between the tags
        ("<question>How much is <|im_start|>?</question>", None),
        ("<question>What is x?</question>", None),  # the same
        (f"<question>{'very ' * 1000} long?</question>", None),
        (None, None),  # refused
    ],
)
def test_a_question_that_no_program_knows_is_paraphrased(
    sqlite: Store, tmp_path: Path, reply: str | None, form: str | None
) -> None:
    replies = {"What is x?": ["\\boxed{7}"] * 6 + ["no idea"] * 4}

    def paraphrase(_before: int, body: dict[str, Any]) -> tuple[int, Any]:
        assert body["messages"][1]["content"] == "What is x?"
        return (400, {"error": "no"}) if reply is None else chat_completion(reply)

    with fake_service(paraphrase) as (service, requests):
        gate = {"type": "reordered", "votes": 2, "paraphraser": {"url": service.url, "model": "m"}}
        prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.gates": [gate]})
        label(sqlite, tmp_path, replies)
        of_each, _ = admitted(sqlite, tmp_path, lambda body: ["\\boxed{8}"] * body["n"], t=1)
    assert len(requests) == 1
    [row] = evidence(sqlite, "reordered", 1)
    assert (row.question, row.answers) == (form, ("8", "8") if form else ())
    assert of_each == {"What is x?": "reordered" if form else None}
    with sqlite.read() as session:
        spent = {
            row.purpose: row.requests for row in queries.usage.usage_of(session, "a") if row.stage == "train_solver"
        }
    assert spent["questions"] == 1


def test_a_judge_must_call_the_label_right(sqlite: Store, tmp_path: Path) -> None:
    with fake_service(judge_with(correct_reply)) as (service, requests):
        prepared(sqlite, tmp_path, {"type": "judge", "url": service.url, "model": "m", "name": "x"})
        of_each, _ = admitted(sqlite, tmp_path, by_checkpoint({}))
        before = len(requests)
        admit_questions(context_of(sqlite, "a", 3, home=tmp_path))
        assert len(requests) == before
    assert of_each == {"What is 1 + 2?": None, "What is 2 + 3 + 4?": "judge", "What is 5 - 3?": "judge"}
    assert {(row.voter, row.answers) for row in evidence(sqlite, "judge")} == {
        ("judge_x", ("right",)),
        ("judge_x", ("wrong",)),
    }
    with sqlite.read() as session:  # it is no audit
        assert queries.audits.oracles_of(session, "a") == {}


@pytest.mark.parametrize(("right", "kept"), [(None, 3), (3, 3), (1, 0)])
def test_the_chance_that_a_label_is_right_is_that_of_earlier_audits(
    sqlite: Store, tmp_path: Path, right: int | None, kept: int
) -> None:
    """Of the three labels of iteration 1, so many were right, at the same p_hat. Iteration 2 has not been audited."""
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.gates": [{"type": "accuracy"}]})
    label(sqlite, tmp_path, REPLIES, 1)
    if right is not None:
        labels = [
            OracleLabel(question_id("a", 1, i), "exact", "right" if i < right else "wrong", None) for i in range(3)
        ]
        with sqlite.write() as session:
            queries.questions.add_oracle_labels(session, labels)
    add_checkpoint(sqlite, 1)
    label(sqlite, tmp_path, REPLIES, 2)
    with sqlite.write() as session:  # of this iteration: not looked at
        labels = [OracleLabel(question_id("a", 2, i), "exact", "right", None) for i in range(3)]
        queries.questions.add_oracle_labels(session, labels)
    _, result = admitted(sqlite, tmp_path, by_checkpoint({}), 2)
    assert result["kept"] == kept
    assert result["gates"]["accuracy"]["state"] == ([] if right is None else [[1, 0.6, 3, right]])
    assert result["gates"]["accuracy"]["metrics"] == ({} if right is None else {"estimated": pytest.approx(right / 3)})


def test_a_stage_that_was_cut_off_asks_only_what_it_did_not_store(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.stages.evidence.BATCH", 1)
    prepared(sqlite, tmp_path, {"type": "solvers", "votes": 4})
    asked = list[str]()
    texts = by_checkpoint({"a/solver/1": VOTED})

    def texts_of(body: dict[str, Any]) -> Sequence[str]:
        asked.append(f"{body['policy_version']} {body['seed']}")
        return texts(body)

    # The votes took 90 tokens; a question takes four answers of three.
    prepare(Home(tmp_path), sqlite, "a", "", 0, {"budget.tokens": 90 + 12 + 1})
    with answering(texts_of) as services:
        with pytest.raises(BudgetSpent):  # after the second question
            admit_questions(context_of(sqlite, "a", 3, home=tmp_path, services=services))
        stored_before = evidence(sqlite, "solvers")
        assert len(stored_before) == 2
        prepare(Home(tmp_path), sqlite, "a", "", 0, {"budget.tokens": 1_000})
        stored_stage(sqlite, tmp_path, admit_questions, 3, services=services)
    rows = evidence(sqlite, "solvers")
    assert [row for row in rows if row in stored_before] == stored_before
    assert len(rows) == 6
    # Each Solver's seeds are its own.
    assert len({*asked}) == len({request.split()[1] for request in asked}) == 6


def test_replayed_questions_get_the_newest_labels(sqlite: Store, tmp_path: Path) -> None:
    """S(2) answers otherwise than the first vote did; of a question without a majority there is no label."""
    replay = {"share": 0.6, "label": "newest"}
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.replay": replay, "serving.batches": 1})
    for t in (1, 2):
        add_checkpoint(sqlite, t, parent=t - 1)
    label(sqlite, tmp_path, REPLIES, 1)
    label(sqlite, tmp_path, {"What is 7 + 7?": ["\\boxed{14}"] * 6 + ["no idea"] * 4, **REPLIES}, 3)
    asked = list[str]()

    def texts_of(body: dict[str, Any]) -> list[str]:
        asked.append(body["policy_version"])
        return by_checkpoint({"a/solver/2": {"What is 1 + 2?": 1, "What is 5 - 3?": 2}})(body)

    for times in range(2):  # the second time, everything is stored
        with answering(texts_of) as services:
            questions = questions_of(context_of(sqlite, "a", 3, home=tmp_path, services=services))
        labels = [(question_key(question.question_id)[1], question.text, question.label) for question in questions]
        assert labels[4:] == [(1, "What is 1 + 2?", "1"), (1, "What is 5 - 3?", "2")], times
        assert [label for _, _, label in labels[:4]] == ["14", *map(str, VOTED.values())]
    assert asked == ["a/solver/2"] * 3
    assert {len(row.answers) for row in evidence(sqlite, "replay", 1)} == {10}
