from __future__ import annotations

import pytest

from core.waiting.polling import wait_until


def test_waiting_ends_when_the_condition_is_true_or_the_time_is_over() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), 60, 0)
    assert not wait_until(lambda: False, 0, 0)
    with pytest.raises(StopIteration):  # an exception of the condition is raised and not taken for a no
        wait_until(lambda: next(answers), 60, 0)
