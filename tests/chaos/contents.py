"""Everything that is stored of a run, in a form in which two runs with the same seed and settings are equal.

What differs between two such runs is left out or replaced: names, owners, times, paths, and the attempts of a stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.texts.unicode import to_json
from storage.files.texts import evaluation_path, read_texts
from storage.models import Base, Evaluations
from storage.queries.run_rows import owned

Contents = dict[str, list[str]]  # table, or file of texts -> its rows, sorted

_DIFFERING = frozenset(
    {"owner", "attempt", "attempts", "path", "used", "error", "seconds", "cpu_seconds", "gpu_seconds"}
    | {"progress_done", "progress_total", "progress_note"}  # of the last attempt
)
# Ends of names of train_metrics.
_TIMED = ("tokens_per_second", "sample_seconds", "swap_seconds", "reward_seconds", "update_seconds")
_NOT_OF_THE_LOOP = {"run_leases", "experiment_runs", "deliveries"}  # the API sends alerts when it comes to it


def contents_of(session: Session, texts: Path, run: str) -> Contents:
    """The rows of a run by table, and the texts of its rollouts below the folder `texts` by file.

    The run's name becomes RUN wherever it occurs in them, so it should be a text that occurs nowhere else.
    """
    names = {run: "RUN"}
    evaluations = select(Evaluations.id, Evaluations.model, Evaluations.benchmark).where(Evaluations.run == run)
    files = {path.relative_to(texts / run).as_posix(): path for path in sorted((texts / run).rglob("*.parquet"))}
    for key, model, benchmark in session.execute(evaluations).all():
        names[key] = f"{model} on {benchmark}"
        if (file := evaluation_path(texts, key)).exists():
            files[f"{names[key]}".replace(run, "RUN")] = file
    contents = {name: _replaced([to_json(row) for row in read_texts(path)], names) for name, path in files.items()}
    for table in Base.metadata.sorted_tables:
        condition = None if table.name in _NOT_OF_THE_LOOP else owned(table, run)
        if condition is None:
            continue
        rows = session.execute(select(table).where(condition)).mappings()
        kept = [row for row in rows if not (table.name == "train_metrics" and row["name"].endswith(_TIMED))]
        contents[table.name] = _replaced([_text(dict(row)) for row in kept], names)
    return contents


def differences(expected: Contents, actual: Contents) -> list[str]:
    """The rows that only one of them has, as sentences with the name of the table or file. Empty if they are equal."""
    sentences = list[str]()
    for name in sorted(expected.keys() | actual.keys()):
        wanted, got = Counter(expected.get(name, ())), Counter(actual.get(name, ()))
        sentences += [f"{name}: a row is missing: {row}" for row in (wanted - got).elements()]
        sentences += [f"{name}: a row is too many: {row}" for row in (got - wanted).elements()]
    return sentences


def _text(row: Mapping[str, object]) -> str:
    return to_json(
        {name: value for name, value in row.items() if name not in _DIFFERING and not isinstance(value, datetime)}
    )


def _replaced(rows: list[str], names: Mapping[str, str]) -> list[str]:
    for name, other in reversed([*names.items()]):  # the run's name last: it is in the others
        rows = [row.replace(name, other) for row in rows]
    return sorted(rows)
