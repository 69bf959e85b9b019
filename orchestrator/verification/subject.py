"""The run that is verified: its settings, and which of its stages are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.types import Checkpoint, Role, Stage
from orchestrator.installation.home import Home
from orchestrator.plan import stages_of
from orchestrator.stages.chain import Chain
from storage import queries
from storage.errors import NotThere
from storage.rows import RunDetail, RunLease, StageRow
from storage.session import Store

Arguments = ParamSpec("Arguments")
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Subject:
    """A run as its ledger was when the verification began, with the iterations that it has made itself; of a run from
    which another has inherited some, these. Rows of stages that were done then do not change any more, even if a
    process works on the run."""

    home: Home
    store: Store
    run: RunDetail
    config: RunConfig
    stages: tuple[StageRow, ...]  # of these iterations, by iteration
    lease: RunLease | None  # also an expired one
    quick: bool  # do not read the files of checkpoints
    iterations: range
    of: str  # this run, or the one that has these iterations from it

    @property
    def name(self) -> str:
        return self.run.name

    def read(
        self, query: Callable[Concatenate[Session, Arguments], Rows], *of: Arguments.args, **how: Arguments.kwargs
    ) -> Rows:
        """The rows of a query, in a transaction of its own: a long one would keep the run from writing."""
        with self.store.read() as session:
            return query(session, *of, **how)

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """Those of these iterations, in the order of their trainings."""
        rows = self.read(queries.checkpoints.checkpoints_of, self.of)
        return [row for row in rows if row.run == self.name]

    @cached_property
    def results(self) -> dict[tuple[int, Stage], Mapping[str, Any]]:
        """(iteration, stage) -> result, of the stages that are done."""
        return {(row.iteration, row.stage): row.result or {} for row in self.stages if row.status == "done"}

    def done(self, *stages: Stage) -> list[tuple[int, Stage, Mapping[str, Any]]]:
        """(iteration, stage, result) of each of these stages that is done, by iteration."""
        return [(t, stage, result) for (t, stage), result in self.results.items() if stage in stages]

    @property
    def finished(self) -> set[int]:
        """The iterations whose last stage is done."""
        return {t for t in self.iterations if (t, stages_of(self.config, t)[-1]) in self.results}

    def playing(self, role: Role, iteration: int, stage: Stage) -> str:
        """The id of the checkpoint that played a role when a stage began; what is missing, if one of the chain is."""
        try:
            with self.store.read() as session:
                return Chain(session, self.name, self.config, iteration, stage).checkpoint(role).id
        except NotThere as error:
            return str(error)
