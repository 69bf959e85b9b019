"""What `check_health` says of an iteration, worked out by hand on a made-up run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import CONFIG, create, evaluate, label, vote_of

from core.config import Audit
from core.types import Checkpoint, Evaluated
from orchestrator.home import Home, Services
from orchestrator.stages import Context
from orchestrator.stages.health import check_health
from storage import queries
from storage.session import open_store


def signals(tmp_path: Path, correct: tuple[int, int], asked: int, audited: bool = True) -> dict[str, Any]:
    """Ten held-out items of which `correct` are right before and after, and `asked` kept questions, two ill-posed."""
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    config = CONFIG if audited else CONFIG.model_copy(update={"audit": Audit(oracle=None)})
    with store.write() as session:
        create(session, "h", config)
        queries.add_checkpoint(session, Checkpoint("h/solver/1", "h", "solver", 1, 1, "/m", "sha", "h/base/0"), {})
        for t, right in enumerate(correct):
            evaluate(
                session, "h", t, [Evaluated(f"i{i}", None, 8, 8 * (i < right), False, False) for i in range(10)], 1
            )
        well = [(f"What is {i} + 2?", vote_of((str(i + 2), 6), ("0", 4))) for i in range(asked - 2)]
        ill = [(f"What is {i} + ?", vote_of(("3", 6))) for i in range(2)]
        label(session, "h", 1, [*well, *ill], config)
    context = Context(Home(tmp_path), store, Services("", "", "", "", "", {}), "h", config, 1, lambda *_: None)
    last_write = check_health(context)
    with store.write() as session:
        found: dict[str, Any] = last_write(session)
    return found


def test_a_healthy_iteration_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = signals(tmp_path, correct=(3, 5), asked=10)
    assert (found["warnings"], caplog.records) == ([], [])
    assert found["signals"]["ill_posed_share"]["value"] == 0.2
    accuracy = found["signals"]["label_accuracy_kept"]
    assert (accuracy["value"], accuracy["n"]) == (0.8, 10)
    assert accuracy["ci95"] == pytest.approx([0.4902, 0.9433], abs=1e-4)  # Wilson, 8 of 10
    assert (found["signals"]["pass_at_1"], found["signals"]["best_pass_at_1"]) == (0.5, 0.5)


def test_decline_and_ill_posed_questions_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = signals(tmp_path, correct=(5, 4), asked=8)
    assert found["warnings"] == [
        "held-out pass@1 is 40.0%, down from 50.0%",
        "25% of the Challenger's questions are ill-posed",
    ]
    assert (found["action"], found["back_to"]) == ("warn", None)
    assert [record.getMessage().split(": ", 1)[0] for record in caplog.records] == ["run h, iteration 1"] * 2


def test_without_an_oracle_there_are_held_out_signals_only(tmp_path: Path) -> None:
    found = signals(tmp_path, correct=(5, 5), asked=8, audited=False)
    assert found["signals"].keys() == {"pass_at_1", "best_pass_at_1", "repetition_share"}
