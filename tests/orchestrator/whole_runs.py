"""The run of one iteration that the live tests share: its settings, and everything that it stores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from core.types import Stage
from storage import queries
from storage.files.texts import read_texts, texts_path
from storage.models import Base, Evaluations
from tests.live import SMALL, Live

# The REST API accepts no file names, so the benchmark is one of the tiny world's own. Batches are sent one after the
# other, so that a run can be killed between two. The Solver is also trained on labelled data, as a branch (R-Zero B.3).
BENCHMARK, BENCHMARK_ITEMS = "micro-validation", 300
_MORE = (
    f"evaluation.benchmark={BENCHMARK}",
    "evaluation.samples=1",
    "serving.batches=1",
    "labelled.file=micro",
    "labelled.limit=12",
)
_TEXTS = ("rollout_text", "labelled.file", "evaluation.benchmark")
OVERRIDES: dict[str, Any] = {
    name: value if name in _TEXTS else json.loads(value)
    for name, value in (setting.split("=", 1) for setting in (*SMALL, *_MORE))
}

# The columns that differ between two runs with the same seed: names, owners, times and paths.
_IGNORED = {
    "owner",
    "lease_expires",
    "attempt",
    "started_at",
    "finished_at",
    "created_at",
    "updated_at",
    "path",
    "since",
    "used",
    "seconds",
    "cpu_seconds",
    "gpu_seconds",
    "error",
}
_TIMED = ("tokens_per_second", "sample_seconds", "reward_seconds", "update_seconds")


@dataclass(frozen=True)
class WholeRun:
    """A run that has ended, and everything that it had stored before any test added to it."""

    name: str
    rows: dict[str, list[Any]]
    texts: list[tuple[str, int, str]]


def status(live: Live, run: str) -> str | None:
    """The run's status in the store; None before the run is stored."""
    with live.store().read() as session:
        return next((row.status for row in queries.runs.list_runs(session) if row.name == run), None)


def rows(live: Live, run: str) -> dict[str, list[Any]]:
    """Every row of a run by table, with the run's name and the keys of its evaluations replaced."""
    by_table = {}
    with live.store().read() as session:
        mine = session.execute(select(Evaluations.id, Evaluations.model).where(Evaluations.run == run)).all()
        names = {run: run, **{row.id: f"the evaluation of {row.model}" for row in mine}}
        for table, columns in Base.metadata.tables.items():
            all_rows = session.execute(select(columns)).mappings()
            of_run = [
                row for row in all_rows if any(isinstance(v, str) and v.split("/")[0] in names for v in row.values())
            ]
            by_table[table] = sorted(
                tuple(
                    (name, repr(names.get(value, value) if isinstance(value, str) else value).replace(run, "RUN"))
                    for name, value in row.items()
                    if name not in _IGNORED
                )
                for row in of_run
                if not str(row.get("name")).endswith(_TIMED)
            )
    stored = ("questions", "rollouts", "pseudo_labels", "checkpoints", "evaluated_items", "evaluated_answers")
    assert all(by_table[name] for name in (*stored, "training_rollouts"))
    return by_table


def texts(live: Live, run: str) -> list[tuple[str, int, str]]:
    """The text of every answer of the labelling stage, and those of the trainings' stored rollouts."""
    stages: tuple[Stage, ...] = ("label_questions", "train_challenger", "train_solver", "train_labelled")
    stored = [read_texts(texts_path(live.home.texts, run, 1, stage)) for stage in stages]
    assert all(stored)
    return [(row.question_id.removeprefix(run), row.sample_index, row.text) for rows in stored for row in rows]
