"""`coevo compare`: the arms of an experiment, runs, or models on several benchmarks, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.settings.evaluation import Protocol
from orchestrator.cli.comparison_tables import show, show_models
from orchestrator.cli.terminal import AsJson, reading, writing
from orchestrator.question_sets.benchmarks import definition_of, read_suite
from services.comparison.models import ModelComparison, compare_models, k_curves, models_named
from services.comparison.runs import Comparison, arms_named, arms_of, compare, inherited_until
from services.views.series import Curve, curves_of, steps_until

if TYPE_CHECKING:
    from orchestrator.pictures.comparison import Panel

Axis = Literal["iteration", "step"]
# The figures of accuracy that runs are compared by, as the tables call them -> their names in a comparison.
_ACCURACIES = {"greedy": "greedy", "majority": "majority", "pass@1": "pass_at_1", "pass_at_1": "pass_at_1"}


class CompareError(CoevoError):
    """Options that do not go together; the message names them."""


def _refuse_other_formats(picture: Path | None) -> Path | None:
    if picture is not None and picture.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise typer.BadParameter(f"expected a name that ends in .png, .pdf or .svg, got {picture}")
    return picture


def compare_command(
    names: Annotated[
        list[str],
        typer.Argument(
            help="An experiment, or two runs or more. On benchmarks: RUN:ITERATION, RUN:base, RUN:best, "
            "RUN:labelled/ITERATION, a folder, URL#MODEL, or RUN or RUN/labelled for all iterations.",
            show_default=False,
        ),
    ],
    suite: Annotated[
        str | None, typer.Option(help="Compare stored evaluations on the benchmarks of a suite.", show_default=False)
    ] = None,
    benchmarks: Annotated[
        list[str] | None, typer.Option("--benchmark", help="Or on this benchmark.", show_default=False)
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="On benchmarks: greedy, pass@K or maj@K; by default the suite's. Of runs, in the picture: greedy, "
            "majority, pass@1, or any name that --series takes; by default greedy.",
            show_default=False,
        ),
    ] = None,
    series: Annotated[
        list[str] | None,
        typer.Option(
            help="Draw a figure of `coevo show series`, or a metric of training, of runs.", show_default=False
        ),
    ] = None,
    by: Annotated[Axis, typer.Option(help="What the picture of runs has on its axis.")] = "iteration",
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw lines into this file, a panel for each figure. It ends in .png, .pdf or .svg.",
            show_default=False,
            callback=_refuse_other_formats,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the arms of an experiment, runs, or models on benchmarks. The first is the baseline.

    Without a suite or benchmarks, runs are compared after their last iterations (docs/experiments.md). With them,
    models are compared on each benchmark and on the average (docs/evaluation.md). --benchmark, --metric and --series
    may be given more than once.
    """
    with reading() as session:
        for name in benchmarks or ():
            definition_of(name)  # refuses one that there is not
        of_suite = read_suite(suite).protocols() if suite is not None else {}
        # Benchmark -> how it is asked; None: in any way.
        if protocols := dict[str, Protocol | None](dict.fromkeys(benchmarks or ())) | of_suite:
            # Evaluations of a folder are stored under its full path.
            full = (str(Path(name).resolve()) if "/" in name and Path(name).is_dir() else name for name in names)
            models = models_named(session, full, [*protocols])
            every = [model for group in models.values() for model in group]
            comparison = compare_models(session, every, protocols, metrics or [None])
            if picture is not None:
                _write(picture, *_model_panels(session, comparison, models, series or [], by), as_json=as_json)
            if as_json:
                print(TypeAdapter(ModelComparison).dump_json(comparison, indent=1).decode())
            else:
                show_models(comparison, {model: _commands(comparison, model, suite) for model in comparison.missing})
        elif series and not metrics:
            if picture is None and not as_json:
                raise CompareError("--series: expected with --picture or --json")
            arms = arms_of(session, names)
            curves = {name: curves_of(session, arms, name, by == "step") for name in series}
            if picture is not None:
                _write(picture, [_series_panel(session, arms, name, by) for name in curves], as_json=as_json)
            if as_json:
                print(TypeAdapter(dict[str, dict[str, Curve]]).dump_json(curves, indent=1).decode())
        else:
            _compare_arms(session, names, [*(metrics or ["greedy"]), *(series or [])], by, picture, as_json)


def _compare_arms(
    session: Session, names: Sequence[str], figures: Sequence[str], by: Axis, picture: Path | None, as_json: bool
) -> None:
    scores = {name: _ACCURACIES[name] for name in figures if name in _ACCURACIES}
    if by == "step" and scores:
        raise CompareError(f"--by step: expected --metric or --series of other names than {', '.join(scores)}")
    if picture is None and figures != ["greedy"]:
        raise CompareError("--metric: expected with --picture, or with --suite or --benchmark")
    comparison = compare(session, *arms_named(session, names))
    if picture is not None:
        from orchestrator.pictures.comparison import arm_panel  # matplotlib takes a second to import

        arms = arms_of(session, names)
        panels = [
            arm_panel(comparison, scores[name]) if name in scores else _series_panel(session, arms, name, by)
            for name in figures
        ]
        _write(picture, panels, as_json=as_json)
    if as_json:
        print(TypeAdapter(Comparison).dump_json(comparison, indent=1).decode())
    else:
        show(comparison)


def _series_panel(session: Session, arms: Mapping[str, Sequence[str]], name: str, by: Axis) -> Panel:
    """The mean of each arm over its runs, and the runs."""
    from orchestrator.pictures.comparison import series_panel

    of_runs = curves_of(session, {run: [run] for runs in arms.values() for run in runs}, name, by == "step")
    runs = {arm: [of_runs[run] for run in runs if run in of_runs] for arm, runs in arms.items()}
    inherited = {arm: inherited_until(session, of_arm) for arm, of_arm in arms.items()}
    return series_panel(name, curves_of(session, arms, name, by == "step"), by, runs, inherited)


def _write(picture: Path, panels: Sequence[Panel], columns: int | None = None, *, as_json: bool) -> None:
    from orchestrator.pictures.comparison import picture_of

    with writing(picture) as temporary:
        temporary.write_bytes(picture_of(panels, picture.suffix[1:].lower(), columns))
    typer.echo(f"wrote {picture}", err=as_json)  # with --json, only JSON is on standard output


def _model_panels(
    session: Session, comparison: ModelComparison, models: Mapping[str, list[str]], series: Sequence[str], by: Axis
) -> tuple[list[Panel], int | None]:
    """Of runs, the figures by iteration or step, and series; of single models, the figures by k. Also the number of
    columns, None for any."""
    from orchestrator.pictures.comparison import k_panels, metric_panels

    runs = [name for name, of_name in models.items() if of_name != [name]]
    if not runs:
        if series:
            raise CompareError(f"--series: expected runs, got {', '.join(models)}")
        curves = k_curves(session, comparison)
        return k_panels(curves), len(curves) if len(curves) > 1 else None
    if len(runs) < len(models):
        raise CompareError(f"--picture: expected only runs or only single models, got {', '.join(models)}")
    positions = {
        model: (run, _iteration(model) if by == "iteration" else until.get(_iteration(model), 0))
        for run in runs
        for until in [steps_until(session, run.partition("/")[0])]
        for model in models[run]
    }
    loops = [run for run in runs if "/" not in run]  # only these have series
    of_series = [_series_panel(session, arms_of(session, loops), name, by) for name in series]
    return [*metric_panels(comparison, positions, by), *of_series], None


def _commands(comparison: ModelComparison, model: str, suite: str | None) -> str:
    """What makes the missing evaluations of a model: one command for the suite, and one for each other protocol."""

    def options_of(protocol: Protocol) -> dict[str, object]:
        sampling = protocol.sampling
        options = {"samples": protocol.samples, "temperature": sampling.temperature, "top-p": sampling.top_p}
        return {**options, "top-k": sampling.top_k, "max-tokens": sampling.max_tokens}

    of_suite, usual = read_suite(suite).benchmarks if suite is not None else {}, options_of(Protocol())
    benchmarks_by_options: dict[str, list[str]] = {}
    for benchmark in comparison.benchmarks:
        if benchmark.name in comparison.missing[model]:
            if benchmark.name in of_suite:
                benchmarks_by_options[f"--suite {suite}"] = []  # it names them
            else:
                own = options_of(benchmark.protocol)
                options = " ".join(f"--{name} {value}" for name, value in own.items() if value != usual[name])
                benchmarks_by_options.setdefault(options, []).append(benchmark.name)
    address, _, served = model.partition("#")
    named = ["--model", served] if served else []
    return "; ".join(
        " ".join(["coevo evaluate", address, *names, *named, options]).strip()
        for options, names in benchmarks_by_options.items()
    )


def _iteration(model: str) -> int:
    which = model.rpartition(":")[2].removeprefix("labelled/")
    return 0 if which == "base" else int(which)
