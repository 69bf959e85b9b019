"""The run that is verified: its settings, and which of its stages are done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from core.errors import CoevoError
from core.settings.config import CoEvolution, RunConfig
from core.types import Stage
from orchestrator.installation.home import Home
from orchestrator.plan import stages_of
from orchestrator.question_sets.held_out import held_out_texts
from storage import queries
from storage.errors import StoreError
from storage.rows import RunDetail, RunLease, StageRow
from storage.session import DATABASE_ERRORS, Store


@dataclass(frozen=True)
class Subject:
    """A run as its ledger was when the verification began. Rows of stages that were done then do not change any more,
    even if a process works on the run."""

    home: Home
    store: Store
    run: RunDetail
    config: RunConfig
    stages: tuple[StageRow, ...]  # all, by iteration
    lease: RunLease | None  # also an expired one
    quick: bool  # do not read the files of checkpoints

    @property
    def name(self) -> str:
        return self.run.name

    @cached_property
    def results(self) -> dict[tuple[int, Stage], Mapping[str, Any]]:
        """(iteration, stage) -> result, of the stages that are done."""
        return {(row.iteration, row.stage): row.result or {} for row in self.stages if row.status == "done"}

    def done(self, *stages: Stage) -> list[tuple[int, Mapping[str, Any]]]:
        """(iteration, result) of each of these stages that is done, by iteration."""
        return [(t, result) for (t, stage), result in self.results.items() if stage in stages]

    @cached_property
    def finished(self) -> list[int]:
        """The iterations of which all stages are done."""
        done = self.results.keys()
        iterations = range(self.config.iterations + 1)
        return [t for t in iterations if all((t, stage) in done for stage in stages_of(self.config, t))]

    @cached_property
    def unfinished(self) -> list[StageRow]:
        """The stages that have begun and are not done."""
        return [row for row in self.stages if row.status != "done"]

    @property
    def voted(self) -> list[int]:
        """The iterations whose questions are all voted on."""
        return [t for t, _ in self.done("label_questions")]

    @property
    def labelled(self) -> list[int]:
        """The iterations whose questions all have their verdicts, by a vote or, for given prompts, without one."""
        if isinstance(self.config, CoEvolution) or self.config.votes_before_training:
            return self.voted
        return [t for t, _ in self.done("read_prompts")]

    @cached_property
    def held_out(self) -> set[str] | None:
        """The questions that no Solver may train on; None if a benchmark cannot be read here any more."""
        try:
            return held_out_texts(self.config)
        except CoevoError:
            return None


def subject_of(home: Home, store: Store, name: str, *, quick: bool) -> Subject:
    """Raises `NotThere` if there is no such run, `UnreadableSettings`, and `StoreError` if the database is damaged."""
    try:
        with store.read() as session:
            run = queries.runs.get_run(session, name)
            stages = queries.ledger.stages_of(session, name)
            lease = queries.run_leases.leases(session).get(name)
    except DATABASE_ERRORS as error:
        raise StoreError(f"run {name}: its rows cannot be read: {error}") from error
    return Subject(home, store, run, queries.runs.config_from(run), tuple(stages), lease, quick)
