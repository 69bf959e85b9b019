"""What a command that runs a run says when somebody ends it."""

from __future__ import annotations

import pytest

from orchestrator.cli import running


def test_who_ends_a_run_in_a_terminal_is_told_that_it_is_cancelled_and_how_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt), running._told_how_to_go_on("night"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "run night: cancelled; `coevo resume night` continues it\n"
