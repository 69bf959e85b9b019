"""Replay of stored votes: the figures of a small synthetic iteration, compared with values by hand."""

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
from orchestrator.analysis.replay import ReplayError, replay, table
from storage import queries
from storage.errors import StoreError
from storage.files.texts import TextWriter, texts_path
from storage.session import Store
from tests.synthetic_run import create

RUN = "made-up"
# The votes of each question; the truth of every question is 7. Entropies rise along each row.
VOTES: list[list[str | None]] = [
    ["7", "7", "7", "8"],
    ["8", "8", "7", "8"],  # a firm and wrong majority
    ["7", "7", "8", "8"],  # a tie, which SCRL does not label
    [None, None, None, "7"],
]


def fill(
    store: Store,
    texts: Path | None,
    entropies: bool = True,
    entropy_error: float = 0.0,
    all_votes: list[list[str | None]] = VOTES,
) -> None:
    base = f"{RUN}/base/0"
    questions = [Question(question_id(RUN, 1, i), RUN, 1, i, f"q{i}?", "raw", base, i) for i in range(len(all_votes))]
    rollouts = [
        Rollout(
            question.id,
            sample,
            "no" if answer is None else rf"{'1 + ' * sample}1 \boxed{{{answer}}}",
            answer,
            5,
            "stop",
            0.1 * sample if entropies else None,
            entropy_error if entropies else None,
            base,
            sample,
        )
        for question, votes in zip(questions, all_votes, strict=True)
        for sample, answer in enumerate(votes)
    ]
    labels = [
        LabelledQuestion(question.id, question.text, vote(votes, None), "kept" if i < 2 else "too_hard")
        for i, (question, votes) in enumerate(zip(questions, all_votes, strict=True))
    ]
    with store.write() as session:
        create(session, RUN)
        queries.questions.add_questions(session, questions)
        queries.questions.add_rollouts(session, rollouts)
        queries.questions.add_labels(session, labels)
        queries.questions.add_oracle_labels(session, [OracleLabel(q.id, "exact", "right", "7") for q in questions])
    if texts is not None:
        writer = TextWriter(texts_path(texts, RUN, 1, "label_questions"))
        writer.add(0, rollouts)
        writer.finish()


def replay_methods(store: Store, texts: Path, names: list[str], kept: bool = False) -> dict[str, Any]:
    return replay(store, texts, RUN, 1, [parse_method(name) for name in names], kept)


def test_the_figures_of_three_methods_by_hand(sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite, tmp_path / "texts")
    result = replay_methods(sqlite, tmp_path / "texts", ["ttrl", "scrl", "supervised"])
    assert (result["questions"], result["rollouts"], result["over"]) == (4, 16, "asked")
    assert replay_methods(sqlite, tmp_path / "texts", ["ttrl"], kept=True)["questions"] == 2
    ttrl, scrl, supervised = (result["methods"][name] for name in ("ttrl", "scrl", "supervised"))
    # The majorities are 7, 8, 7 (the smaller key of a tie) and 7: three of four are right. Rewards: 3 + 3 + 2 + 1 of
    # 16.
    assert (ttrl["label_accuracy"]["value"], ttrl["label_accuracy"]["n"]) == (3 / 4, 4)
    assert ttrl["reward"]["mean"] == pytest.approx(9 / 16)
    assert ttrl["as_stored"]["value"] == 1
    # SCRL labels the first two questions, with shares of 3/4 and leads of 1/2; then there is a tie, then 1/4 is too
    # few.
    assert scrl["labelled"]["value"] == 2 / 4
    assert (scrl["label_accuracy"]["value"], scrl["label_accuracy"]["n"]) == (1 / 2, 2)
    # The truth gives rewards of 3 + 1 + 2 + 1 of 16, and differs from the stored label once.
    assert supervised["reward"]["mean"] == pytest.approx(7 / 16)
    assert supervised["as_stored"]["value"] == 3 / 4
    matrix = result["advantage_correlation"]["matrix"]
    assert [row[i] for i, row in enumerate(matrix)] == pytest.approx([1, 1, 1])
    assert matrix[0][1] == pytest.approx(matrix[1][0])
    assert -1 <= matrix[0][2] < 1
    apart = {row["question_id"][-1]: row["labels"] for row in result["disagreements"]}
    assert apart == {
        "1": {"ttrl": "8", "scrl": "8", "supervised": "7"},
        "2": {"ttrl": "7", "scrl": None, "supervised": "7"},
        "3": {"ttrl": "7", "scrl": None, "supervised": "7"},
    }


def test_all_methods_can_be_replayed_and_shown(sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite, tmp_path / "texts")
    result = replay_methods(sqlite, tmp_path / "texts", list(METHODS))
    assert not any("skipped" in row for row in result["methods"].values())
    json.dumps(result, allow_nan=False)
    shown = io.StringIO()
    Console(width=150, file=shown).print(table(result))
    assert all(name in shown.getvalue() for name in METHODS)
    assert "n = 4" in shown.getvalue()


def test_a_vote_that_the_grader_cannot_compare_with_the_label_has_no_reward(sqlite: Store, tmp_path: Path) -> None:
    """The label is 7. By TTRL, which votes itself, "5th term" is another answer; by GRPO it is undecided."""
    fill(sqlite, tmp_path / "texts", all_votes=[["7", "5th term", "7", "8"]])
    result = replay_methods(sqlite, tmp_path / "texts", ["ttrl", "grpo", "supervised"])
    ttrl, grpo = (result["methods"][name]["reward"]["mean"] for name in ("ttrl", "grpo"))
    assert (ttrl, grpo) == pytest.approx((2 / 4, 2 / 3))
    matrix = result["advantage_correlation"]["matrix"]
    assert matrix[0][1] == pytest.approx(1)  # of the three rollouts that both judge
    assert matrix[1][2] == pytest.approx(1)


def test_votes_that_are_all_undecided_have_neither_rewards_nor_a_correlation(sqlite: Store, tmp_path: Path) -> None:
    """The truth is 7, and no vote can be compared with it; the label is "5th term", and no other vote with that."""
    fill(sqlite, tmp_path / "texts", all_votes=[["5th term", "6th term", "5th term"]])
    result = replay_methods(sqlite, tmp_path / "texts", ["grpo", "supervised"])
    assert result["methods"]["supervised"]["reward"] is None
    assert result["advantage_correlation"]["matrix"] == [[None, None], [None, None]]
    Console(file=io.StringIO()).print(table(result))


def test_a_method_whose_signals_are_not_stored_is_skipped_with_the_reason(sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite, None, entropies=False)
    result = replay_methods(sqlite, tmp_path / "texts", ["evol_rl", "poly_epo", "scrl", "ttrl"])
    assert result["methods"]["evol_rl"] == {"skipped": "no texts are stored (rollout_text)"}
    assert result["methods"]["poly_epo"] == {"skipped": "no texts are stored (rollout_text)"}
    assert result["methods"]["scrl"] == {"skipped": "no entropies are stored"}
    assert result["methods"]["ttrl"]["questions"] == 4
    assert result["advantage_correlation"]["methods"] == ["ttrl"]


def test_estimated_entropies_are_named_as_such(sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite, tmp_path / "texts", entropy_error=0.25)
    result = replay_methods(sqlite, tmp_path / "texts", ["scrl"])
    assert result["estimated_entropies"] == {"rollouts": result["rollouts"], "greatest_error": 0.25}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(result))
    assert "with an error of at most 0.250 nats a token" in " ".join(console.export_text().split())


def test_an_iteration_without_votes_and_an_unknown_run_are_refused(sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite, None)
    with pytest.raises(ReplayError, match="run made-up, iteration 2"):
        replay(sqlite, tmp_path, RUN, 2, [parse_method("ttrl")])
    with pytest.raises(StoreError, match="nobody"):
        replay(sqlite, tmp_path, "nobody", 1, [parse_method("ttrl")])
