"""Replay of stored votes: a small made-up iteration whose every figure can be worked out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from core.methods import METHODS
from core.questions.voting import vote
from core.settings.parsing import parse_method
from core.types import LabelledQuestion, OracleLabel, Question, Rollout, question_id
from orchestrator.analysis.replay import ReplayError, replay, table, write_picture
from storage import queries
from storage.errors import StoreError
from storage.session import Store
from storage.texts import TextWriter
from tests.synthetic_run import create

RUN = "made-up"
# question -> votes; the truth is 7 everywhere. Entropies rise along each row.
VOTES: list[list[str | None]] = [
    ["7", "7", "7", "8"],
    ["8", "8", "7", "8"],  # the majority is wrong, and firm
    ["7", "7", "8", "8"],  # a tie, which SCRL does not label
    [None, None, None, "7"],
]


@pytest.fixture
def store(sqlite: Store) -> Store:
    return sqlite


def fill(store: Store, texts: Path | None, entropies: bool = True, entropy_error: float = 0.0) -> None:
    base = f"{RUN}/base/0"
    questions = [Question(question_id(RUN, 1, i), RUN, 1, i, f"q{i}?", "raw", base, i) for i in range(len(VOTES))]
    rollouts = [
        Rollout(
            question.id,
            place,
            "no" if answer is None else rf"{'1 + ' * place}1 \boxed{{{answer}}}",
            answer,
            5,
            "stop",
            0.1 * place if entropies else None,
            entropy_error if entropies else None,
            base,
            place,
        )
        for question, votes in zip(questions, VOTES, strict=True)
        for place, answer in enumerate(votes)
    ]
    labels = [
        LabelledQuestion(question.id, question.text, vote(votes, None), "kept" if i < 2 else "too_hard")
        for i, (question, votes) in enumerate(zip(questions, VOTES, strict=True))
    ]
    with store.write() as session:
        create(session, RUN)
        queries.questions.add_questions(session, questions)
        queries.questions.add_rollouts(session, rollouts)
        queries.questions.add_labels(session, labels)
        queries.questions.add_oracle_labels(session, [OracleLabel(q.id, "exact", "right", "7") for q in questions])
    if texts is not None:
        writer = TextWriter(texts, RUN, 1, "label_questions")
        writer.add(0, rollouts)
        writer.finish()


def played(store: Store, texts: Path, names: list[str], kept: bool = False) -> dict[str, Any]:
    return replay(store, texts, RUN, 1, [parse_method(name) for name in names], kept)


def test_figures_by_hand(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path / "texts")
    found = played(store, tmp_path / "texts", ["ttrl", "scrl", "supervised"])
    assert (found["questions"], found["rollouts"], found["over"]) == (4, 16, "asked")
    ttrl, scrl, supervised = (found["methods"][name] for name in ("ttrl", "scrl", "supervised"))
    # Majorities 7, 8, 7 (the smaller key of a tie), 7: three of four are right. Rewards 3 + 3 + 2 + 1 of 16.
    assert (ttrl["label_accuracy"]["value"], ttrl["label_accuracy"]["n"]) == (3 / 4, 4)
    assert ttrl["reward"]["mean"] == pytest.approx(9 / 16)
    assert ttrl["as_stored"]["value"] == 1
    # SCRL labels the first two: shares 3/4 leading by 1/2; 1/2 and 1/2 tie; 1/4 is too few.
    assert scrl["labelled"]["value"] == 2 / 4
    assert (scrl["label_accuracy"]["value"], scrl["label_accuracy"]["n"]) == (1 / 2, 2)
    # The truth rewards 3 + 1 + 2 + 1 of 16, and differs from what is stored once.
    assert supervised["reward"]["mean"] == pytest.approx(7 / 16)
    assert supervised["as_stored"]["value"] == 3 / 4
    matrix = found["advantage_correlation"]["matrix"]
    assert [row[i] for i, row in enumerate(matrix)] == pytest.approx([1, 1, 1])
    assert matrix[0][1] == pytest.approx(matrix[1][0])
    assert -1 <= matrix[0][2] < 1
    apart = {row["question_id"][-1]: row["labels"] for row in found["disagreements"]}
    assert apart == {
        "1": {"ttrl": "8", "scrl": "8", "supervised": "7"},
        "2": {"ttrl": "7", "scrl": None, "supervised": "7"},
        "3": {"ttrl": "7", "scrl": None, "supervised": "7"},
    }


def test_all_methods_are_replayed_and_shown(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path / "texts")
    found = played(store, tmp_path / "texts", list(METHODS))
    assert not any("skipped" in row for row in found["methods"].values())
    json.dumps(found, allow_nan=False)
    shown = io.StringIO()
    Console(width=150, file=shown).print(table(found))
    assert all(name in shown.getvalue() for name in METHODS)
    assert "n = 4" in shown.getvalue()
    picture = write_picture(found, tmp_path / "reports")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_only_the_kept_ones(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path / "texts")
    assert (played(store, tmp_path / "texts", ["ttrl"], kept=True))["questions"] == 2


def test_what_is_not_stored_is_said(store: Store, tmp_path: Path) -> None:
    fill(store, None, entropies=False)
    found = played(store, tmp_path / "texts", ["evol_rl", "poly_epo", "scrl", "ttrl"])
    assert found["methods"]["evol_rl"] == {"skipped": "no texts are stored (rollout_text)"}
    assert found["methods"]["poly_epo"] == {"skipped": "no texts are stored (rollout_text)"}
    assert found["methods"]["scrl"] == {"skipped": "no entropies are stored"}
    assert found["methods"]["ttrl"]["questions"] == 4
    assert found["advantage_correlation"]["methods"] == ["ttrl"]


def test_estimated_entropies_are_named_as_such(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path / "texts", entropy_error=0.25)
    found = played(store, tmp_path / "texts", ["scrl"])
    assert found["estimated_entropies"] == {"rollouts": found["rollouts"], "greatest_error": 0.25}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(found))
    assert "wrong by at most 0.250 nats a token" in " ".join(console.export_text().split())


def test_an_iteration_without_votes_and_a_run_that_is_not_there(store: Store, tmp_path: Path) -> None:
    fill(store, None)
    with pytest.raises(ReplayError, match="run made-up, iteration 2: no votes are stored"):
        replay(store, tmp_path, RUN, 2, [parse_method("ttrl")])
    with pytest.raises(StoreError, match="nobody"):
        replay(store, tmp_path, "nobody", 1, [parse_method("ttrl")])
