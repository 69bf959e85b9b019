from __future__ import annotations

import pytest

from core.grading.grader import Grader
from core.rollouts.groups import make_groups


def test_groups_with_and_without_labels(grader: Grader) -> None:
    answers = [["7", None, "07", "8"], ["1", "2"], [r"\sqrt{12}", "x y", "42 is the answer", None]]
    first, second, third = make_groups(answers, ["7", None, r"2\sqrt{3}"], grader)
    assert (first.label, first.agrees, first.classes) == ("7", (True, False, True, False), (0, None, 0, 1))
    assert (second.label, second.agrees, second.classes) == (None, None, (0, 1))
    assert third.agrees == (True, False, None, False)  # the grader cannot decide on words


def test_as_many_labels_as_groups_are_required(grader: Grader) -> None:
    with pytest.raises(ValueError, match="zip"):
        make_groups([["1"], ["2"]], ["1"], grader)
