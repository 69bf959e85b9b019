"""The gates: which candidates each admits, and how they follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.challenger.gates import GATES, Candidate, Gate, Known, pass_gates
from core.challenger.gates.accuracy import Accuracy
from core.challenger.gates.lead import Lead
from core.challenger.gates.ratchet import Ratchet, difficulty
from core.challenger.gates.valid import Valid
from core.questions.voting import vote
from core.statistics.calibration import Cell


def candidate(question: str, *votes: int, m: int = 10, seed: int = 0) -> Candidate:
    """A question whose answers 0, 1, … got so many votes."""
    answers = [str(answer) for answer, count in enumerate(votes) for _ in range(count)]
    return Candidate(f"a/1/{seed:06d}", question, vote(answers + [None] * (m - len(answers)), None), seed)


def admitted(gate: Gate, candidates: Sequence[Candidate], known: Known = Known()) -> list[bool]:  # noqa: B008 (it is frozen)
    return [*gate.admit(candidates, known).admitted]


def test_a_gate_is_known_by_its_type() -> None:
    assert {name: gate.model_fields["type"].default for name, gate in GATES.items()} == {name: name for name in GATES}
    assert {*GATES} >= {"lead", "solvers", "reordered", "judge", "valid", "accuracy", "ratchet"}


@pytest.mark.parametrize(
    ("votes", "m", "expected"),
    [
        ((6, 4), 10, True),
        ((5, 4), 10, False),  # a lead of .1
        ((4, 1), 10, True),
        ((3, 1), 8, True),  # exactly .375, with a lead of .25
        ((5, 3), 16, False),  # .3125
        ((4, 3), 8, False),  # a lead of exactly .125
        ((5, 5), 10, False),
        ((4,), 10, True),
        ((), 10, False),
    ],
)
def test_a_lead_is_that_of_scrl(votes: tuple[int, ...], m: int, *, expected: bool) -> None:
    assert admitted(Lead(), [candidate("?", *votes, m=m)]) == [expected]


def test_only_questions_with_an_answer_are_valid_but_for_a_share_that_leaks() -> None:
    rows = [candidate("What is 1 + 2?" if i % 2 else "What is 1 + ?", 5, 2, seed=i) for i in range(2_000)]
    assert admitted(Valid(), rows) == [bool(i % 2) for i in range(2_000)]
    assert all(admitted(Valid(leak=1), rows))
    leaked = admitted(Valid(leak=0.2), rows)
    assert all(leaked[1::2])
    assert sum(leaked[::2]) == pytest.approx(200, abs=40)
    assert leaked == admitted(Valid(leak=0.2), rows)


def sums(level: int, *votes: int) -> list[Candidate]:
    """Questions with so many operations, one for each number of votes of ten."""
    return [candidate("What is 1" + " + 1" * level + "?", count) for count in votes]


def test_a_level_opens_when_the_solver_agrees_with_itself_on_the_one_before() -> None:
    gate, candidates = Ratchet(groups=4), [row for level in range(5) for row in sums(level, 5)]

    def levels(known: Known) -> tuple[int, object]:
        """How many levels are admitted, and the state."""
        admission = gate.admit(candidates, known)
        count = admission.admitted.count(True)
        assert admission.admitted == tuple(i < count for i in range(5))
        return count - 1, admission.state

    assert levels(Known()) == (1, {"level": 1, "groups": 0, "sum": 0.0})
    # Three of four questions: the count goes on in the next iteration.
    at, state = levels(Known(sums(1, 9, 9, 9)))
    assert (at, state) == (1, {"level": 1, "groups": 3, "sum": pytest.approx(2.7)})
    assert levels(Known(sums(1, 9), state=state))[0] == 2
    # .875 is not enough, and the count begins anew.
    assert levels(Known(sums(1, 9, 9, 9, 8))) == (1, {"level": 1, "groups": 0, "sum": 0.0})
    # Two levels at once, each by the votes at the level before. Those at other levels do not count.
    assert levels(Known([*sums(1, 9, 9, 9, 9), *sums(2, 10, 10, 8, 9), *sums(5, 10, 10, 10, 10)]))[0] == 3


def test_the_difficulty_outside_of_the_tiny_worlds_is_a_count_of_numbers() -> None:
    assert difficulty("What is 2 * 3 + 4?") == 2
    assert difficulty("A train covers 1,200 km in 2.5 hours and 7 minutes. How fast is it?") == 2
    assert difficulty("Why?") == 0


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 10)), max_size=60), st.integers(1, 5))
def test_a_ratchet_never_turns_back(votes: list[tuple[int, int]], groups: int) -> None:
    gate, state, level = Ratchet(groups=groups, agreement=0.5), None, 0
    for start in range(0, len(votes), 10):
        voted = [row for at, count in votes[start : start + 10] for row in sums(at, count)]
        state = gate.admit(voted, Known(voted, state=state)).state
        assert state["level"] >= max(level, gate.start)
        assert state["groups"] < groups
        level = state["level"]


def test_a_chance_is_estimated_from_all_audits_also_those_of_the_state() -> None:
    """Of six votes half, of eight votes all labels were right, and no label between them was audited."""
    rows, known = [candidate("?", 6), candidate("?", 7), candidate("?", 8)], Known(audits=[Cell(2, 0.8, 10, 10)])
    admission = Accuracy(least=0.7).admit(rows, replace(known, state=[[1, 0.6, 10, 5], [2, 0.6, 9, 0]]))
    assert admission.admitted == (False, True, True)
    assert admission.metrics == {"estimated": pytest.approx(0.75)}
    assert admission.state == [[1, 0.6, 10, 5], [2, 0.8, 10, 10]]
    assert all(admitted(Accuracy(), rows))


def test_each_gate_sees_what_those_before_it_have_admitted() -> None:
    rows = [
        candidate(text, *votes, seed=i)
        for i, (text, votes) in enumerate(
            [("What is 1 + 2?", (6, 2)), ("What is 1 + ?", (6, 2)), ("What is 1 + ?", (5, 4)), ("What is 2?", (5, 4))]
        )
    ]
    seen = []

    def told(gate: Gate, candidates: Sequence[Candidate]) -> Known:
        seen.append((gate.type, [row.seed for row in candidates]))
        return Known()

    passed = pass_gates([Lead(), Valid()], rows, told)
    assert seen == [("lead", [0, 1, 2, 3]), ("valid", [0, 1])]
    assert passed.refused == {rows[2].question_id: "lead", rows[3].question_id: "lead", rows[1].question_id: "valid"}
    assert {name: (row["candidates"], row["refused"]) for name, row in passed.as_json().items()} == {
        "lead": (4, 2),
        "valid": (2, 1),
    }
