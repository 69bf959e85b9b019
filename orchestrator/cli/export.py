"""`coevo export`: questions of runs, the votes on them, a run's metrics, or an evaluation's records, as a file with a
manifest."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from core.settings.parsing import ConfigError
from core.validation.pydantic_errors import fault_of
from orchestrator.cli import questions
from orchestrator.cli.terminal import AsJson, Kept, RunName, opened, print_json, suggest_runs, writing
from services.evaluations.exports import export_records
from services.views.metric_exports import export_metrics
from storage.exports.columns import What
from storage.exports.files import PLAIN_FORMATS, Export, PlainFormat, manifest_path_of
from storage.exports.runs import SUFFIXES, Format
from storage.exports.runs import export as export_rows
from storage.exports.selection import ITERATIONS_HELP, Selection, runs_of

Kind = TypeVar("Kind")

export = typer.Typer(help="Write questions, votes, metrics or an evaluation's records to a file.", no_args_is_help=True)
_RECORDS: dict[str, PlainFormat] = {f".{kind}": kind for kind in PLAIN_FORMATS}  # by the ending of a file's name
_QUESTIONS: dict[str, Format] = {f".{suffix}": kind for kind, suffix in SUFFIXES.items()}
File = Annotated[
    Path, typer.Argument(help="The file to write; its ending is the format.", show_default=False, dir_okay=False)
]


@export.command("votes")
@export.command("questions")
def rows(
    *,
    context: typer.Context,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="A run, or several, whose rows are then in one file with experiment, arm and run_seed.",
            show_default=False,
            autocompletion=suggest_runs,
        ),
    ] = None,
    iterations: Annotated[str, typer.Argument(help=f"{ITERATIONS_HELP}.", show_default=False)],
    file: File,
    experiment: Annotated[
        str | None, typer.Option(help="In place of RUN: all runs of this experiment.", show_default=False)
    ] = None,
    texts: Annotated[
        bool, typer.Option("--texts", help="Votes with what the Solver wrote, where the run keeps it (rollout_text).")
    ] = False,
    kept: Kept = False,
    verdict: questions.Verdicts = None,
    p_hat_min: questions.PHatMin = None,
    p_hat_max: questions.PHatMax = None,
    text: questions.Text = None,
    cluster: questions.Cluster = None,
    oracle: questions.Oracle = None,
    oracle_verdict: questions.OracleVerdict = None,
    as_json: AsJson = False,
) -> None:
    """Write questions with their labels, or the votes on them: .jsonl, .csv, .parquet, or a .zip for Hugging Face.

    The options choose the questions. The manifest is written beside the file; --json prints it too (docs/api.md,
    exports).
    """
    from services.api.question_filters import QuestionFilters  # imports FastAPI, which takes half a second

    if kept and verdict:
        raise ConfigError(f"--kept: expected no --verdict besides it, got {', '.join(verdict)}")
    if bool(run) == (experiment is not None):
        raise ConfigError(f"RUN: expected runs or --experiment, got {'both' if run else 'neither'}")
    values: dict[str, Any] = {
        "p_hat_min": p_hat_min,
        "p_hat_max": p_hat_max,
        "text": text,
        "cluster": cluster,
        "oracle": oracle,
    }
    values |= {"oracle_verdict": oracle_verdict, "verdict": ["kept"] if kept else verdict or []}
    try:
        filters = QuestionFilters.model_validate(values).as_filter()
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise ConfigError(str(fault_of(f"--{option}", first))) from error
    what: What = "votes" if context.info_name == "votes" else "questions"
    selection = Selection("", iterations, what, filters, texts)
    kind = _format(file, _QUESTIONS)
    coevo_home, store = opened()
    if experiment is not None:
        with store.read() as session:
            selection = replace(selection, runs=runs_of(session, experiment))
    elif run:
        selection = replace(selection, runs=tuple(run) if len(run) > 1 else run[0])
    _copy(export_rows(store, coevo_home.exports, selection, kind, coevo_home.texts), file, as_json)


@export.command("metrics")
def metrics(run: RunName, file: File, as_json: AsJson = False) -> None:
    """Write all that was measured of a run: .jsonl, .csv or .parquet, one row for each training metric of a step, each
    figure of a series and each evaluation, with its interval and n.

    The manifest is written beside the file; --json prints it too (docs/dashboard.md).
    """
    kind = _format(file, _RECORDS)
    coevo_home, store = opened()
    _copy(export_metrics(store, coevo_home.exports, run, kind), file, as_json)


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
    kind = _format(file, _RECORDS)
    coevo_home, store = opened()
    _copy(export_records(store, coevo_home.exports, coevo_home.texts, key, kind), file, as_json)


def _format(file: Path, formats: Mapping[str, Kind]) -> Kind:
    if file.suffix not in formats:
        raise ConfigError(f"{file}: expected a name that ends with one of {', '.join(formats)}")
    return formats[file.suffix]


def _copy(exported: Export, file: Path, as_json: bool) -> None:
    manifest = manifest_path_of(file)
    for source, target in ((exported.path, file), (manifest_path_of(exported.path), manifest)):
        with writing(target) as temporary:
            shutil.copyfile(source, temporary)
    if as_json:
        print_json(exported.manifest)
    else:
        print(f"wrote {exported.manifest['rows']:,} rows to {file}, and their manifest to {manifest}")
        for of in exported.manifest.get("runs", [exported.manifest]):
            for maker, iterations in of.get("inherited", {}).items():
                print(f"run {of['run']} has its iterations {iterations[0]} to {iterations[-1]} from run {maker}")
