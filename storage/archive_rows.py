"""The rows of an archive: as JSON and back, and whether they belong to the archive's runs.

The same rules hold when an archive is written and when it is read, so what is written can be read. They keep a crafted
archive from adding rows to other runs of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, create_model
from sqlalchemy import Table

from core.types import checkpoint_id, question_id, question_key
from storage import queries
from storage.archive import Member, run_of
from storage.checkpoints import MANIFEST
from storage.errors import ArchiveError

_BOUNDED: dict[Any, Any] = {int: Annotated[int, Field(ge=-(2**63), lt=2**63)], datetime: AwareDatetime}
_KEPT = ("runs", "checkpoints", "evaluations", "alerts")  # tables whose keys are few enough to be in memory


def as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON has it: times are texts."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def parsed(table: Table, line: bytes) -> dict[str, Any]:
    """The row of a line. Raises `ArchiveError` unless it has the table's columns, with values of their types."""
    try:
        return dict(_validator(table).model_validate_json(line))
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        raise ArchiveError(f"rows of {table.name}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error


@cache
def _validator(table: Table) -> type[BaseModel]:
    """Validates a row of a table against the types of its columns."""
    hints = get_type_hints(queries.archived.model_of(table))
    fields: dict[str, Any] = {column.name: (_bounded(get_args(hints[column.name])[0]), ...) for column in table.columns}
    return create_model(table.name, __config__=ConfigDict(strict=True, extra="forbid"), **fields)


def _bounded(hint: Any) -> Any:
    """The type with the bounds that a database has."""
    if hint in _BOUNDED:
        return _BOUNDED[hint]
    required = [part for part in get_args(hint) if part in _BOUNDED]
    return _BOUNDED[required[0]] | None if required and isinstance(hint, UnionType) else hint


class References:
    """What the rows of an archive refer to, collected table by table in the order of `queries.archived.TABLES`."""

    def __init__(self, runs: Iterable[str]) -> None:
        self.runs = frozenset(runs)
        self.keys: dict[str, set[str]] = {name: set() for name in _KEPT}
        self._checkpoints: list[Mapping[str, Any]] = []

    def checked(self, section: str, table: Table, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same rows. Raises `ArchiveError` at one that belongs to a run which its section is not of, or that refers
        to a run, checkpoint, question, evaluation or alert which is not in the archive."""
        for row in rows:
            self._refuse_other_run(section, table, row)
            for key in table.foreign_keys:
                self._refuse_unknown(section, table, row, key.parent.name, key.column.table.name)
            if table.name in _KEPT:
                self.keys[table.name].add(row["name" if table.name == "runs" else "id"])
            if table.name == "checkpoints":
                self._checkpoints.append(row)
            yield row

    def refuse_other_files(self, members: Mapping[str, Member]) -> None:
        """Raise `ArchiveError` unless each checkpoint has the files that were published, but for those that were
        removed on purpose."""
        files: dict[str, dict[str, str]] = {}
        for name, member in members.items():
            match name.split("/", 5):
                case [_, run, "checkpoints", role, iteration, file]:
                    files.setdefault(f"{run}/{role}/{iteration}", {})[file] = member.sha256
        for row in self._checkpoints:
            published = {} if row["files_removed"] else {**row["manifest"], MANIFEST: row["sha256"]}
            stored = files.pop(row["id"], {})
            for file in sorted(name for name in published | stored if published.get(name) != stored.get(name))[:1]:
                raise ArchiveError(
                    f"checkpoint {row['id']}: {file}: expected sha256 {published.get(file)}, got {stored.get(file)}"
                )
        if files:
            raise ArchiveError(f"checkpoint {min(files)}: has files and no row in the archive")

    def _refuse_other_run(self, section: str, table: Table, row: Mapping[str, Any]) -> None:
        run = run_of(section)
        named = row["name"] if table.name == "runs" else row.get("run", run)
        expected = {
            "questions": lambda: question_id(row["run"], row["iteration"], row["index"]),
            "checkpoints": lambda: checkpoint_id(row["run"], row["role"], row["iteration"]),
        }
        is_key = table.name not in expected or row["id"] == expected[table.name]()
        # An evaluation of the run's checkpoint may be another run's, or have been made by `coevo evaluate`.
        if (named != run and table.name != "evaluations") or not is_key:
            raise ArchiveError(f"{section}: rows of {table.name}: expected rows of this run, got one of {named!r}")

    def _refuse_unknown(self, section: str, table: Table, row: Mapping[str, Any], column: str, parent: str) -> None:
        value = row[column]
        if value is None:
            return
        is_known = self._is_of_a_run(value) if parent == "questions" else value in self._known(parent)
        if not is_known:
            raise ArchiveError(
                f"{section}: rows of {table.name}: {column}: {value!r} is not in the archive; if another run has it, "
                "name that run too"
            )

    def _known(self, parent: str) -> Iterable[str]:
        return self.runs if parent == "runs" else self.keys[parent]

    def _is_of_a_run(self, question: str) -> bool:
        try:
            return question_key(question)[0] in self.runs
        except ValueError:
            return False
