"""A run whose figures can be worked out by hand."""

from __future__ import annotations

import math

from core.settings.config import RunConfig
from core.types import Checkpoint
from storage import queries
from storage.session import Store
from tests.synthetic_run import (
    CONFIG,
    create,
    evaluate,
    held_out,
    label,
    vote_of,
)


def small_run(store: Store, config: RunConfig = CONFIG) -> None:
    """Store a run whose figures can be worked out by hand: four benchmark items, eight candidates."""
    with store.write() as session:
        create(session, "small", config)
        evaluate(session, "small", 0, held_out([2, 4, 0, 8], [1, 0, 0, 1], [0, 0, 0, 1]), took=5)
        solver = Checkpoint("small/solver/1", "small", "solver", 1, 20, "/models", "sha", "small/base/0")
        queries.checkpoints.add_checkpoint(session, solver, {})
        evaluate(session, "small", 1, held_out([4, 6, 2, 8], [1, 1, 1, 1], [1, 1, 0, 1]), took=7.5)
        questions = [
            ("What is 1 + 2?", vote_of(("3", 5), ("2", 5))),  # right, kept
            ("What is 2 + 2 + 1?", vote_of(("6", 4), ("5", 3))),  # wrong, kept
            ("What is 3 + ?", vote_of(("3", 6))),  # ill-posed, kept
            ("What is 7 + 1?", vote_of(("8", 10))),  # right, too easy
            ("What is 9 + 9?", vote_of()),  # without an answer
            ("What is 4 + ?", vote_of()),  # ill-posed, without an answer
            (None, None),  # malformed
            ("What is 1 + 2?", None),  # duplicate
        ]
        label(session, "small", 1, questions, config)
        for step, reward in enumerate((0.1, math.inf, 0.3), 1):
            metrics = {"reward_mean": reward, "kl": math.nan}
            queries.figures.add_train_metrics(
                session, run="small", iteration=1, role="challenger", step=step, metrics=metrics
            )
