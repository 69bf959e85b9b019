"""Ranges of the remaining time, by hand and on generated durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.statistics.remaining import Durations, Key, Remaining, duration_of, remaining_of
from core.types import Stage

LOOP: tuple[Stage, ...] = ("label_questions", "train_solver", "evaluate")
PLAN: list[Key] = [(t, stage) for t in (1, 2, 3) for stage in LOOP]
SECONDS = st.floats(0.01, 1e6)
DURATIONS = st.dictionaries(st.sampled_from(PLAN), SECONDS)
RANGES = st.tuples(SECONDS, SECONDS).map(lambda ends: Remaining(min(ends), max(ends)))


def test_nothing_is_said_of_a_stage_that_nothing_is_known_of() -> None:
    assert duration_of((1, "evaluate"), {(1, "train_solver"): 9.0}, []) is None
    assert remaining_of([(2, "evaluate"), (2, "train_solver")], 0, {(1, "evaluate"): 9.0}, []) is None
    assert remaining_of([], 0, {}, []) == Remaining(0, 0)


def test_the_run_s_own_earlier_iterations_give_the_range_and_later_ones_may_take_longer() -> None:
    own: Durations = {(0, "evaluate"): 1.0, (1, "evaluate"): 30.0, (2, "evaluate"): 60.0}
    next_one, last = (duration_of((t, "evaluate"), own, []) for t in (3, 5))
    # Two durations: the range goes beyond them by a third. The base model's evaluation does not count.
    assert next_one is not None
    assert (next_one.low, next_one.high) == pytest.approx((30 * 3 / 4, 60 * 4 / 3 * 1.3))
    assert last is not None
    assert (last.low, last.high) == pytest.approx((30 * 3 / 4, 60 * 4 / 3 * 1.3**3))


def test_the_base_model_s_evaluation_counts_if_nothing_else_is_known() -> None:
    duration = duration_of((1, "evaluate"), {(0, "evaluate"): 30.0}, [])
    assert duration is not None
    assert (duration.low, duration.high) == pytest.approx((20, 30 * 1.5 * 1.3))


def test_a_similar_run_is_scaled_by_the_stages_that_both_have() -> None:
    similar: Durations = {(1, "evaluate"): 10.0, (1, "train_solver"): 100.0, (2, "train_solver"): 200.0}
    # This run is three times as slow in the same stage; another stage says nothing then.
    slow: Durations = {(1, "train_solver"): 300.0, (1, "evaluate"): 10.0}
    both = duration_of((2, "train_solver"), slow, [similar])
    assert both is not None
    assert (both.low, both.high) == pytest.approx((300 * 3 / 4, 600 * 4 / 3))
    # Nothing of the stage itself is known, so the ratio of the other stages is taken.
    first = duration_of((1, "train_solver"), {(1, "evaluate"): 20.0}, [similar])
    assert first is not None
    assert (first.low, first.high) == pytest.approx((200 / 1.5, 200 * 1.5))


def test_a_run_s_range_is_the_sum_of_its_stages_less_the_time_that_has_passed() -> None:
    own: Durations = {(1, "train_solver"): 100.0, (1, "evaluate"): 10.0}
    to_come: list[Key] = [(2, "train_solver"), (2, "evaluate")]
    whole, later = (remaining_of(to_come, elapsed, own, []) for elapsed in (0, 50))
    assert whole is not None
    assert (whole.low, whole.high) == pytest.approx((110 / 1.5, 110 * 1.5 * 1.3))
    assert later is not None
    assert (later.low, later.high) == pytest.approx((100 / 1.5 - 50 + 10 / 1.5, 110 * 1.5 * 1.3 - 50))


@given(duration=RANGES, elapsed=st.tuples(SECONDS, SECONDS))
def test_a_range_is_never_negative_and_narrows_while_the_stage_takes_as_long_as_expected(
    duration: Remaining, elapsed: tuple[float, float]
) -> None:
    sooner, later = (duration.after(seconds) for seconds in sorted(elapsed))
    for remaining in (sooner, later):
        assert 0 <= remaining.low <= remaining.high
    if max(elapsed) < duration.high:
        assert later.low <= sooner.low
        assert later.high <= sooner.high
        assert later.high - later.low <= (sooner.high - sooner.low) * (1 + 1e-9) + 1e-6


@given(own=DURATIONS, similar=st.lists(DURATIONS, max_size=3), elapsed=SECONDS)
def test_no_range_of_a_run_is_negative_or_upside_down_and_more_stages_take_longer(
    own: dict[Key, float], similar: list[dict[Key, float]], elapsed: float
) -> None:
    to_come = [key for key in PLAN if key not in own]
    whole, part = remaining_of(to_come, elapsed, own, similar), remaining_of(to_come[:2], elapsed, own, similar)
    if whole is not None:
        assert 0 <= whole.low <= whole.high
        assert part is not None
        assert (part.low, part.high) <= (whole.low, whole.high)
