"""`coevo export`: questions of runs, the votes on them, or an evaluation's records, as a file with a manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import ValidationError

from core.settings.parsing import ConfigError
from core.validation import fault_of
from orchestrator.cli.terminal import AsJson, clear_errors, suggest_runs, written
from orchestrator.installation.home import home
from services.record_exports import export_records
from storage.export_files import PLAIN_FORMATS, Export, PlainFormat, manifest_path_of
from storage.export_selection import ITERATIONS_HELP, Selection, runs_of
from storage.exports import SUFFIXES, Format
from storage.exports import export as export_rows
from storage.queries.browse import QuestionFilter
from storage.session import open_store

Kind = TypeVar("Kind")

export = typer.Typer(help="Write questions, votes or an evaluation's records to a file.", no_args_is_help=True)
_RECORDS: dict[str, PlainFormat] = {f".{kind}": kind for kind in PLAIN_FORMATS}  # by the ending of a file's name
_QUESTIONS: dict[str, Format] = {f".{suffix}": kind for kind, suffix in SUFFIXES.items()}
File = Annotated[
    Path, typer.Argument(help="The file to write; its ending is the format.", show_default=False, dir_okay=False)
]

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN",
        help="A run, or several, whose rows are then in one file with experiment, arm and run_seed.",
        show_default=False,
        autocompletion=suggest_runs,
    ),
]
Experiment = Annotated[
    str | None, typer.Option(help="In place of RUN: all runs of this experiment.", show_default=False)
]
Iterations = Annotated[str, typer.Argument(help=f"{ITERATIONS_HELP}.", show_default=False)]
Kept = Annotated[bool, typer.Option("--kept", help="Only the questions that the Solver learned from.")]
Verdicts = Annotated[
    list[str] | None, typer.Option("--verdict", help="Only questions with this verdict; may be given more than once.")
]
PHatMin = Annotated[float | None, typer.Option(help="Only questions with at least this p_hat.")]
PHatMax = Annotated[float | None, typer.Option(help="Only questions with at most this p_hat.")]
Text = Annotated[str | None, typer.Option(help="Only questions that contain this text.")]
Cluster = Annotated[int | None, typer.Option(help="Only questions of this cluster of similar questions.")]
Oracle = Annotated[str | None, typer.Option(help="Only questions whose label this oracle has graded.")]
OracleVerdict = Annotated[
    str | None, typer.Option(help="Only questions whose label got this verdict, from --oracle if that is given.")
]


@export.command("questions")
def questions(
    *,
    run: Runs = None,
    iterations: Iterations,
    file: File,
    experiment: Experiment = None,
    kept: Kept = False,
    verdict: Verdicts = None,
    p_hat_min: PHatMin = None,
    p_hat_max: PHatMax = None,
    text: Text = None,
    cluster: Cluster = None,
    oracle: Oracle = None,
    oracle_verdict: OracleVerdict = None,
    as_json: AsJson = False,
) -> None:
    """Write questions with their labels: .jsonl, .csv, .parquet, or a .zip for Hugging Face.

    The manifest is written beside the file; --json prints it too (docs/api.md, exports).
    """
    with clear_errors():
        filters = _filter(kept, verdict, p_hat_min, p_hat_max, text, cluster, oracle, oracle_verdict)
        _export(run, experiment, Selection("", iterations, "questions", filters), file, as_json)


@export.command("votes")
def votes(
    *,
    run: Runs = None,
    iterations: Iterations,
    file: File,
    experiment: Experiment = None,
    texts: Annotated[
        bool, typer.Option("--texts", help="With what the Solver wrote, where the run keeps it (rollout_text).")
    ] = False,
    kept: Kept = False,
    verdict: Verdicts = None,
    p_hat_min: PHatMin = None,
    p_hat_max: PHatMax = None,
    text: Text = None,
    cluster: Cluster = None,
    oracle: Oracle = None,
    oracle_verdict: OracleVerdict = None,
    as_json: AsJson = False,
) -> None:
    """Write votes on questions, one row for each: .jsonl, .csv, .parquet, or a .zip for Hugging Face.

    The options choose the questions. The manifest is written beside the file; --json prints it too (docs/api.md,
    exports).
    """
    with clear_errors():
        filters = _filter(kept, verdict, p_hat_min, p_hat_max, text, cluster, oracle, oracle_verdict)
        _export(run, experiment, Selection("", iterations, "votes", filters, texts), file, as_json)


@export.command("evaluation")
def evaluation(
    key: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the evaluation, which coevo evaluate prints.", show_default=False)
    ],
    file: File,
    as_json: AsJson = False,
) -> None:
    """Write an evaluation's records: .jsonl, .csv or .parquet, with every question, its answers and their verdicts.

    The manifest is written beside the file; --json prints it too (docs/evaluation.md).
    """
    with clear_errors():
        kind = _format(file, _RECORDS)
        coevo_home = home()
        store = open_store(coevo_home.database)
        _copy(export_records(store, coevo_home.exports, coevo_home.texts, key, kind), file, as_json)


def _filter(
    kept: bool,
    verdict: Sequence[str] | None,
    p_hat_min: float | None,
    p_hat_max: float | None,
    text: str | None,
    cluster: int | None,
    oracle: str | None,
    oracle_verdict: str | None,
) -> QuestionFilter:
    """The filter of the options. The API's parameters check the values. Raises `ConfigError`."""
    from services.api.question_filters import QuestionFilters  # imported here so that no other command waits for it

    if kept and verdict:
        raise ConfigError(f"--kept: expected no --verdict besides it, got {', '.join(verdict)}")
    values = {"p_hat_min": p_hat_min, "p_hat_max": p_hat_max, "text": text, "cluster": cluster}
    values |= {"oracle": oracle, "oracle_verdict": oracle_verdict}
    try:
        return QuestionFilters.model_validate({"verdict": ["kept"] if kept else verdict or [], **values}).as_filter()
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise ConfigError(str(fault_of(f"--{option}", first))) from error


def _export(runs: list[str] | None, experiment: str | None, selection: Selection, file: Path, as_json: bool) -> None:
    """Write the file of the `selection`, with the runs that are named in place of its own."""
    if bool(runs) == (experiment is not None):
        raise ConfigError(f"RUN: expected runs or --experiment, got {'both' if runs else 'neither'}")
    kind = _format(file, _QUESTIONS)
    coevo_home = home()
    store = open_store(coevo_home.database)
    if experiment is not None:
        with store.read() as session:
            selection = replace(selection, runs=runs_of(session, experiment))
    elif runs:
        selection = replace(selection, runs=tuple(runs) if len(runs) > 1 else runs[0])
    _copy(export_rows(store, coevo_home.exports, selection, kind, coevo_home.texts), file, as_json)


def _format(file: Path, formats: Mapping[str, Kind]) -> Kind:
    if file.suffix not in formats:
        raise ConfigError(f"{file}: expected a name that ends with one of {', '.join(formats)}")
    return formats[file.suffix]


def _copy(exported: Export, file: Path, as_json: bool) -> None:
    manifest = manifest_path_of(file)
    for source, target in ((exported.path, file), (manifest_path_of(exported.path), manifest)):
        with written(target) as temporary:
            shutil.copyfile(source, temporary)
    if as_json:
        print(json.dumps(exported.manifest, indent=1))
    else:
        print(f"wrote {exported.manifest['rows']:,} rows to {file}, and their manifest to {manifest}")
