"""AdamW's moments between the rounds of `self_train`, where these are one training.

At the end of a round, the moments are published under the same key as the round's checkpoint, but in another folder of
the home, HOME/optimisers/RUN/solver/ROUND, so that checkpoints have the same files and hashes as without them. The
stage's result has their sha256. They are removed when no later round can start from them.
"""

from __future__ import annotations

from dataclasses import replace

from core.settings.config import SelfTraining
from core.types import Checkpoint
from orchestrator.stages.context import Context, StageError
from storage import queries
from trainers.base import Rounds
from trainers.folders import remove


def rounds_from(context: Context, config: SelfTraining, start: Checkpoint) -> Rounds | None:
    """What the round that starts from `start` must know of all rounds; None if it is a training of its own.

    Raises `StageError` if AdamW's moments of a Solver are not there.
    """
    if not config.rounds_are_one_training:
        return None
    if start.role != "solver":
        return Rounds(config.solver_steps, None)
    with context.store.read() as session:
        result = queries.ledger.result_of(session, start.run, start.iteration, "train_solver")
    folder = context.run.home.moments(start)
    sha256 = (result or {}).get("optimiser")
    if sha256 is None or not folder.is_dir():
        raise StageError(
            f"run {context.run}, iteration {context.iteration}: solver.training.optimiser is 'continued': expected the "
            f"optimiser's moments of {start.id} in {folder}, there are none"
        )
    return Rounds(config.solver_steps, replace(start, path=str(folder), sha256=sha256))


def remove_unneeded(context: Context, start: Checkpoint) -> None:
    """Remove the moments that neither this round nor a later one can start from.

    This round starts from `start`. A later one can start from this round's result, or from the best round before it,
    to which the run may be rolled back. Those of rounds that a fork has inherited stay. Raises `LeaseLost`.
    """
    context.refuse_lost()  # another process may be in a later round, and need others
    with context.store.read() as session:
        needed = {start.iteration, context.chain(session).best_to_go_back_to()}
        needed |= queries.forks.forks_of(session, context.run.name).keys()
    folder = context.run.home.optimisers / context.run.name / "solver"
    for moments in folder.iterdir() if folder.is_dir() else ():
        if moments.name not in map(str, needed):
            remove(moments)
