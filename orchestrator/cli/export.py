"""`coevo export`: an iteration's questions, or an evaluation's records, as a file with a manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from core.settings.parsing import ConfigError
from orchestrator.cli.terminal import RunName, clear_errors, written
from orchestrator.installation.home import home
from services.record_exports import export_records
from storage.export_files import PLAIN_FORMATS, Export, PlainFormat, manifest_path_of
from storage.exports import SUFFIXES, Format, Only
from storage.exports import export as export_questions
from storage.session import open_store

Kind = TypeVar("Kind")

export = typer.Typer(help="Write an iteration's questions or an evaluation's records to a file.", no_args_is_help=True)
_RECORDS: dict[str, PlainFormat] = {f".{kind}": kind for kind in PLAIN_FORMATS}  # by the ending of a file's name
_QUESTIONS: dict[str, Format] = {f".{suffix}": kind for kind, suffix in SUFFIXES.items()}
File = Annotated[
    Path, typer.Argument(help="The file to write; its ending is the format.", show_default=False, dir_okay=False)
]


@export.command("questions")
def questions(
    run: RunName,
    iteration: Annotated[int, typer.Argument(help="Iteration of the run.", show_default=False, min=0)],
    file: File,
    kept: Annotated[bool, typer.Option("--kept", help="Only the questions that the Solver learned from.")] = False,
) -> None:
    """Write an iteration's questions with their labels: .jsonl, .csv, .parquet, or a .zip for Hugging Face.

    The manifest is written beside the file, and printed (docs/api.md, exports).
    """
    with clear_errors():
        kind = _format(file, _QUESTIONS)
        coevo_home = home()
        store = open_store(coevo_home.database)
        only: Only = "kept" if kept else "all"
        _copy(export_questions(store, coevo_home.exports, run, iteration, only, kind), file)


@export.command("evaluation")
def evaluation(
    key: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the evaluation, which coevo evaluate prints.", show_default=False)
    ],
    file: File,
) -> None:
    """Write an evaluation's records: .jsonl, .csv or .parquet, with every question, its answers and their verdicts.

    The manifest is written beside the file, and printed (docs/evaluation.md).
    """
    with clear_errors():
        kind = _format(file, _RECORDS)
        coevo_home = home()
        store = open_store(coevo_home.database)
        _copy(export_records(store, coevo_home.exports, coevo_home.texts, key, kind), file)


def _format(file: Path, formats: Mapping[str, Kind]) -> Kind:
    if file.suffix not in formats:
        raise ConfigError(f"{file}: expected a name that ends with one of {', '.join(formats)}")
    return formats[file.suffix]


def _copy(exported: Export, file: Path) -> None:
    for source, target in ((exported.path, file), (manifest_path_of(exported.path), manifest_path_of(file))):
        with written(target) as temporary:
            shutil.copyfile(source, temporary)
    print(json.dumps(exported.manifest, indent=1))
