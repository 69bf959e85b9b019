"""The chain of a run's checkpoints: which one a role has at an iteration, and to which ones a run can go back."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.statistics.guard import Action
from core.statistics.standing import best_of
from core.types import STAGES, Checkpoint, Evaluated, Role, Stage
from orchestrator.plan import TRAININGS
from services.drift.series import accuracies
from storage import queries


@dataclass(frozen=True, slots=True)
class Chain:
    """The checkpoints of a run as an iteration sees them. What was decided after that iteration or later is left out,
    so that an iteration that is run again after a crash sees the same. With `stage`, it is as when that stage began."""

    session: Session
    run: str
    config: RunConfig
    iteration: int
    stage: Stage = "check_health"  # which begins after all trainings

    def checkpoint(self, role: Role, up_to: int | None = None) -> Checkpoint:
        """The newest checkpoint of the model that plays `role`: of this iteration, or of the iteration `up_to`.

        If the run was rolled back and has trained none since, the one that it went back to; else the base model.
        """
        end = self.iteration if up_to is None else up_to
        roll_backs = [
            (t, restored)
            for t, restored in queries.ledger.rolled_back(self.session, self.run)
            if t <= end and t < self.iteration
        ]
        since, restored = roll_backs[-1] if roll_backs else (-1, {})
        trained = [checkpoint for checkpoint in self.trained(role) if since < checkpoint.iteration <= end]
        if trained:
            return trained[-1]
        key = restored.get(role) or queries.checkpoints.id_of(self.session, self.run, "base", 0)
        return queries.checkpoints.get_checkpoint(self.session, key)

    def trained(self, role: Role) -> list[Checkpoint]:
        """The loop's trained checkpoints of the model that plays `role`, in the order of their trainings."""
        application, now = self.config.application(role), STAGES.index(self.stage)
        made_before = {made: STAGES.index(stage) < now for stage, (made, _) in TRAININGS.items()}
        return [
            checkpoint
            for checkpoint in queries.checkpoints.checkpoints_of(self.session, self.run)
            if checkpoint.role in ("challenger", "solver") and self.config.application(checkpoint.role) == application
            if checkpoint.iteration != self.iteration or made_before[checkpoint.role]
        ]

    def checkpoints_at(self, iteration: int) -> dict[Role, str]:
        """Role -> the checkpoint that the role's model had at the end of an iteration.

        The iteration's last checkpoint: pass@1 was measured on it, so a later roll-back does not change it. Without a
        training in the iteration, the previous iteration's.
        """
        trained = {
            role: checkpoint.id
            for role in self.config.roles
            for checkpoint in self.trained(role)
            if checkpoint.iteration == iteration
        }
        return {role: trained.get(role) or self.checkpoint(role, iteration).id for role in self.config.roles}

    def pass_at_1(self) -> list[float | None]:
        """pass@1 of iterations 0 to this one, on the benchmark of early stopping if there is one, else on the
        evaluation's."""
        accuracy = accuracies(self.session, self.run, self._benchmark)
        return [accuracy[t].pass_at_1.value if t in accuracy else None for t in range(self.iteration + 1)]

    def results(self, iteration: int) -> list[Evaluated]:
        """The results of an iteration's Solver on the benchmark of `pass_at_1`, by question; empty without any."""
        solvers = queries.checkpoints.solvers_of(self.session, self.run)
        return [
            result
            for solver in solvers
            if solver.iteration == iteration
            for result in queries.evaluations.evaluations_of(self.session, solver.id, self._benchmark)
        ]

    @property
    def _benchmark(self) -> str:
        stopping = self.config.early_stopping
        return stopping.benchmark if stopping else self.config.evaluation.benchmark

    def rolled_back(self) -> set[int]:
        """The iterations after which the run was rolled back. Such an iteration may have the best pass@1."""
        return {t for t, _ in queries.ledger.rolled_back(self.session, self.run)}

    def best(self, without: Set[int] = frozenset()) -> int:
        """The iteration with the highest pass@1, the earliest if several are equal; 0 if `without` leaves none."""
        accuracy = {t: value for t, value in enumerate(self.pass_at_1()) if t not in without}
        # One that was not measured is taken only if none was.
        return best_of({t: -1.0 if value is None else value for t, value in accuracy.items()}) or 0

    def best_to_go_back_to(self) -> int:
        """The best of the iterations before this one, without those after which the run was rolled back."""
        return self.best(without={self.iteration, *self.rolled_back()})

    def back_to(self, action: Action) -> dict[Role, str] | None:
        """The checkpoints that an action goes back to: role -> id; None if it does not go back.

        A run that stops ends with the best iteration of all, even if that one raised the alarm. A run that is rolled
        back continues from the best earlier iteration; otherwise it could run into the same problem again.
        """
        if action not in ("stop", "roll_back"):
            return None
        return self.checkpoints_at(self.best() if action == "stop" else self.best_to_go_back_to())
