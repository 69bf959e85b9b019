"""The zipped folder that `datasets.load_dataset` takes: the rows as Parquet, a manifest, and a card."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from typing_extensions import override

from storage.exports.files import Row, write_rows

_TIME = (1980, 1, 1, 0, 0, 0)  # fixed, so that the bytes are the same at any time; the earliest that a zip can hold
_DATA = "data/train.parquet"  # path of the rows inside the zip
_ABOUT = {
    "questions": """Questions that a model posed, and labels that models voted for. Nobody but the oracles checked the
labels.""",
    "votes": """The votes of models on questions that a model posed, one row for each. `question_id` is the key of the
question in the export of questions.""",
}


def write_folder(
    file: Any, schema: pa.Schema, pages: Iterable[list[Row]], manifest_of: Callable[[], Mapping[str, Any]]
) -> None:
    """Write the zip from its beginning to its end, so that it can be sent while it is written. `manifest_of` returns
    the manifest once the pages are read."""
    with zipfile.ZipFile(_Sink(file), "w") as archive:
        with archive.open(zipfile.ZipInfo(_DATA, _TIME), "w", force_zip64=True) as inside:
            rows = _Sink(inside)
            write_rows(rows, "parquet", schema, pages)
        manifest = {**manifest_of(), "files": {_DATA: rows.sha256.hexdigest()}}
        # `iterations` is left out: a run that continues for longer has the same rows, which must give the same bytes.
        if "runs" in manifest:
            manifest["runs"] = [_without_limit(run) for run in manifest["runs"]]
        else:
            manifest = _without_limit(manifest)
        archive.writestr(zipfile.ZipInfo("manifest.json", _TIME), json.dumps(manifest, indent=1, sort_keys=True))
        archive.writestr(zipfile.ZipInfo("README.md", _TIME), _card(manifest))


def _without_limit(described: Mapping[str, Any]) -> dict[str, Any]:
    return {**described, "config": {name: it for name, it in described["config"].items() if name != "iterations"}}


class _Sink(io.RawIOBase):
    """A file that is only written on, never back; and the sha256 of what was written."""

    def __init__(self, file: Any) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, data: Any, /) -> int:
        self.sha256.update(data)
        self._file.write(data)
        return memoryview(data).nbytes


def _card(manifest: Mapping[str, Any]) -> str:
    described = manifest.get("runs", [manifest])
    runs = [f"{run['run']}, iterations {', '.join(map(str, run['iterations']))}" for run in described]
    title, *listed = runs if len(runs) == 1 else [f"{len(runs)} runs", f"- runs: {'; '.join(runs)}\n"]
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(manifest["verdicts"].items()))
    filters = ", ".join(f"{name} = {value}" for name, value in manifest["filters"].items())
    audited = [f"`{column['name']}`" for column in manifest["columns"] if column["name"].endswith("_verdict")]
    oracles = f" The oracles' verdicts are in the columns {', '.join(audited)}." if audited else ""
    columns = "\n".join(f"| `{column['name']}` | {column['description']} |" for column in manifest["columns"])
    return f"""---
configs:
- config_name: default
  data_files: {_DATA}
---
# {title}: {manifest["what"]}

{_ABOUT[manifest["what"]]}{oracles}

{"".join(listed)}- rows: {manifest["rows"]}
- questions: {manifest["questions"]} ({verdicts or "none"}), {f"selected by {filters}" if filters else "not filtered"}
- questions written by: {_named(manifest["asked_by"], "no model: the prompts were given")}
- voted on by: {_named(manifest["voted_by"], "nobody")}
- `{_DATA}`: sha256 {manifest["files"][_DATA]}

| column | what it has |
|---|---|
{columns}

`manifest.json` has this for programs, and the run's configuration.
"""


def _named(checkpoints: Mapping[str, str], none: str) -> str:
    return "; ".join(f"`{name}` (sha256 {sha256})" for name, sha256 in checkpoints.items()) or none
