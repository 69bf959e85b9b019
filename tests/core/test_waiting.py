from __future__ import annotations

import time

import pytest

from core.waiting.polling import wait_until
from core.waiting.retries import Attempts, is_transient, seconds_of
from tests.fake_clock import FakeClock, fake_clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return fake_clock(monkeypatch)


def made(attempts: Attempts, retry_after_s: float = 0.0) -> int:
    """How many attempts are made of a request that always fails."""
    count = 1
    while attempts.pause(retry_after_s):
        count += 1
    return count


def test_only_failures_that_may_pass_are_transient() -> None:
    transient = {status for status in range(100, 600) if is_transient(status)}
    assert {408, 409, 429, 500, 502, 503, 504, 529} <= transient
    assert not {200, 307, 400, 401, 403, 404, 413, 422, 501, 505} & transient


def test_pauses_grow_to_a_limit_and_at_most_half_of_each_is_random(clock: FakeClock) -> None:
    assert made(Attempts(1e9, most=9)) == 9
    longest = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert all(most / 2 <= pause <= most for pause, most in zip(clock.pauses, longest, strict=True))
    assert len({pause / most for pause, most in zip(clock.pauses, longest, strict=True)}) > 1


def test_all_attempts_and_pauses_end_within_their_time(clock: FakeClock) -> None:
    attempts = Attempts(60.0)
    count = 1
    while attempts.pause():
        count += 1
        clock.seconds += 5.0  # an attempt that took so long
    assert clock.seconds <= 60.0 + 5.0
    assert count < 60 / 5
    assert attempts.remaining_s < 10.0


def test_pauses_in_all_are_limited_apart_from_the_time_of_the_attempts(clock: FakeClock) -> None:
    attempts = Attempts(1e9, waiting_s=3.0)
    clock.seconds += 1000.0
    assert made(attempts) == 5  # 0.2 + 0.4 + 0.8 + 1.6 = 3.0


def test_a_service_is_not_asked_earlier_than_it_says(clock: FakeClock) -> None:
    assert made(Attempts(100.0, most=3), retry_after_s=30.0) == 3
    assert all(30.0 < pause < 31.0 for pause in clock.pauses)


def test_nobody_waits_for_a_time_after_the_deadline(clock: FakeClock) -> None:
    assert made(Attempts(100.0), retry_after_s=3600.0) == 1
    assert clock.pauses == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *[("7", 7.0), (" 7 ", 7.0), ("0.5", 0.5), (None, 0.0), ("", 0.0), ("²", 0.0), ("-1", 0.0), ("1e9", 0.0)],
        *[("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 21 Oct 99999 07:28:00 GMT", 0.0), ("soon", 0.0)],
    ],
)
def test_retry_after_is_read_as_seconds(header: str | None, seconds: float) -> None:
    assert seconds_of(header) == seconds


@pytest.mark.parametrize("zone", ["GMT", "-0000", "+0000"])
def test_retry_after_may_be_a_date(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1445412480.0 - 90)
    assert seconds_of(f"Wed, 21 Oct 2015 07:28:00 {zone}") == 90.0


def test_waiting_ends_when_the_condition_is_true_or_the_time_is_over() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), 60, 0)
    assert not wait_until(lambda: False, 0, 0)
    with pytest.raises(StopIteration):  # an exception of the condition is raised and not taken for a no
        wait_until(lambda: next(answers), 60, 0)
