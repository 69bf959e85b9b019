"""The checkpoint that a stage starts from."""

from __future__ import annotations

from core.types import Checkpoint
from storage import queries
from storage.session import Store
from tests.synthetic_run import context_of, create, finish


def test_the_iteration_after_a_roll_back_starts_from_the_earlier_checkpoint(sqlite: Store) -> None:
    """Iteration 2 was rolled back to 1. The stages of iteration 2 itself still use its own Solver."""
    with sqlite.write() as session:
        create(session, "r")
        for t in (1, 2, 3):
            checkpoint = Checkpoint(f"r/solver/{t}", "r", "solver", t, 1, "/m", f"sha{t}", "r/base/0")
            queries.checkpoints.add_checkpoint(session, checkpoint, {})
        finish(session, "r", 2, "check_health", {"action": "roll_back", "back_to": {"solver": "r/solver/1"}}, 1)

    def solver(at: int, up_to: int) -> str:
        return context_of(sqlite, "r", at).checkpoint("solver", up_to).id

    assert solver(at=1, up_to=0) == "r/base/0"
    assert solver(at=2, up_to=1) == "r/solver/1"
    assert solver(at=2, up_to=2) == "r/solver/2"
    assert solver(at=3, up_to=2) == "r/solver/1"
    assert solver(at=3, up_to=3) == "r/solver/3"
    assert solver(at=4, up_to=1) == "r/solver/1"
