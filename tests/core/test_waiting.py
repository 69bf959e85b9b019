from __future__ import annotations

import pytest

from core.waiting import wait_until


def test_it_ends_when_it_is_so_or_when_the_time_is_over() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), 60, 0)
    assert not wait_until(lambda: False, 0, 0)
    with pytest.raises(StopIteration):  # what asking raises is not a no
        wait_until(lambda: next(answers), 60, 0)
