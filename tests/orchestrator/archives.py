"""Archives for tests: what is stored in a home, and archives that somebody has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from sqlalchemy import select, update

from core.types import BenchmarkItem, Evaluated, EvaluatedAnswer, Question, checkpoint_id, question_id
from orchestrator.disk.restore import restore
from orchestrator.installation.home import Home
from orchestrator.question_sets.benchmarks import sha256_of
from orchestrator.verification.run import verify_run
from storage import queries
from storage.archive import MANIFEST
from storage.errors import ArchiveError
from storage.models import Base, Checkpoints
from storage.session import Store, open_store
from storage.texts import RolloutText, TextWriter, evaluation_path
from tests.chaos.contents import Contents, contents_of
from tests.orchestrator.stored_runs import RUN
from tests.storage.store_examples import fill, fresh_run
from tests.synthetic_run import fill_run

Members = dict[str, bytes]
LABELS, WEIGHTS = f"runs/{RUN}/rows/pseudo_labels.jsonl", f"runs/{RUN}/checkpoints/solver/1/model.safetensors"


def new_home(folder: Path) -> tuple[Home, Store]:
    """An empty home with an SQLite database."""
    folder.mkdir(mode=0o700)
    return Home(folder), open_store(f"sqlite:///{folder / 'coevo.db'}", create=True)


def contents(home: Home, store: Store, run: str) -> Contents:
    with store.read() as session:
        return contents_of(session, home.texts, run)


def violations(home: Home, store: Store, run: str) -> list[object]:
    return [violation for check in verify_run(home, store, run).checks for violation in check.violations]


def files(home: Home) -> dict[str, str]:
    """Path in the home -> sha256, of all files in its folders."""
    return {
        path.relative_to(home.path).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(home.path.glob("*/**/*"))
        if path.is_file()
    }


def rows(home: Home, store: Store) -> dict[str, list[str]]:
    """All rows by table as they are, but for what an archive leaves out: leases, keys, and the home's path."""
    by_table = {}
    with store.read() as session:
        for table in Base.metadata.sorted_tables:
            if table.name not in ("run_leases", "api_keys"):
                stored = [{**row} for row in session.execute(select(table)).mappings()]
                by_table[table.name] = sorted(_as_text(home, table.name, row) for row in stored)
    return by_table


def _as_text(home: Home, table: str, row: dict[str, Any]) -> str:
    if table == "checkpoints" and not row["files_removed"]:
        row["path"] = row["path"].replace(str(home.path), "HOME")
    elif table == "checkpoints":
        del row["path"]
    if table == "runs":
        del row["unconfirmed"]  # by a restoration
    if table == "stages" and row["status"] == "running":
        del row["lease_expires"]
    return repr(sorted(row.items()))


def add_everything(home: Home, store: Store) -> None:
    """Add runs with many rows and with a row in every table, texts that not every database can hold, and evaluations of
    no run. Their checkpoints have no files."""
    fill_run(store, "synthetic", per_level=2)
    full = fresh_run(store)
    with store.write() as session:
        fill(session, full)
        odd = "NUL \0, \ue000, a line\u2028and \U0001f600"
        key = checkpoint_id(full, "base", 0)
        queries.questions.add_questions(
            session, [Question(question_id(full, 7, 0), full, 7, 0, odd, odd, key, -(2**63), None)]
        )
        metrics = {"reward_mean": float("inf"), "kl": float("nan"), "entropy": 0.1 + 0.2}
        queries.figures.add_train_metrics(session, run=full, iteration=1, role="solver", step=9, metrics=metrics)
        queries.run_leases.release_run(session, run=full, owner="me")
        for run in ("synthetic", full):
            session.execute(update(Checkpoints).where(Checkpoints.run == run).values(files_removed=True))
    add_evaluation(home, store, "/models/other", None)
    add_evaluation(home, store, "synthetic/solver/1", "synthetic/solver/1")


def add_evaluation(home: Home, store: Store, model: str, checkpoint: str | None) -> str:
    """An evaluation by `coevo evaluate` with its benchmark's questions, answers and texts; returns its key."""
    items = [BenchmarkItem("b", "1 + 1", "2", "1", None), BenchmarkItem("a", "1 + 2", "3")]
    sha256 = sha256_of(items)
    with store.write() as session:
        queries.evaluations.add_benchmark_items(session, sha256, items)
        key = queries.evaluations.begin_evaluation(
            session, model=model, benchmark="two", manifest={"benchmark": {"sha256": sha256}}, checkpoint=checkpoint
        ).id
        results = [Evaluated(item.id, item.level, 1, 1, True, True) for item in items]
        answers = [EvaluatedAnswer(item.id, 0, item.answer, 0, "equal", 3, "stop") for item in items]
        queries.evaluations.add_results(session, key, results, answers)
        queries.evaluations.finish_evaluation(session, key)
    writer = TextWriter(evaluation_path(home.texts, key))
    writer.add(0, [RolloutText(item.id, 0, f"It is {item.answer}.") for item in items])
    writer.finish()
    return key


def changed(archive: Path, target: Path, change: Callable[[Members, dict[str, Any]], None]) -> Path:
    """A copy of an archive after `change` of its members and its manifest, as somebody could make it who knows the
    format: the manifest states the size and sha256 of the changed members."""
    with ZipFile(archive) as source:
        members = {name: source.read(name) for name in source.namelist()}
    manifest = json.loads(members.pop(MANIFEST))
    change(members, manifest)
    manifest["members"] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }
    with ZipFile(target, "w") as copy:
        for name, content in members.items():
            copy.writestr(name, content)
        copy.writestr(MANIFEST, json.dumps(manifest))
    return target


def refused(new: tuple[Home, Store], source: Path, *runs: str) -> str:
    """The message of a refused restoration, which has changed nothing."""
    before = files(new[0]), rows(*new)
    with pytest.raises(ArchiveError) as error:
        restore(*new, source, runs)
    assert (files(new[0]), rows(*new)) == before
    return str(error.value)
