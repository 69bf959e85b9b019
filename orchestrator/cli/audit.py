"""`coevo audit`: samples of pseudo-labels for people and judges, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.statistics.audits import audits_needed, detectable_drop
from core.statistics.estimates import Estimate
from orchestrator.cli.judge import judge
from orchestrator.cli.terminal import AsJson, RunName, clear_errors
from orchestrator.installation.home import home
from services.oracles.accuracy import Accuracy, Audits, audits_of
from services.oracles.samples import draw_sample
from storage import queries
from storage.session import open_store

audit = typer.Typer(help="Audits of pseudo-labels: how many, which, and what they say.", no_args_is_help=True)
audit.command("judge")(judge)
Iteration = Annotated[int, typer.Argument(help="Iteration of the run.", show_default=False, min=0)]


@audit.command("plan")
def plan(
    drop: Annotated[float, typer.Option(help="The drop that is to be seen; 0.05 are five points.")] = 0.05,
    accuracy: Annotated[float, typer.Option(help="Label accuracy before it.")] = 0.8,
    power: Annotated[float, typer.Option(help="How surely it is to be seen.")] = 0.8,
    confidence: Annotated[float, typer.Option(help="How rarely a drop is seen that is none: 0.95 is 5%.")] = 0.95,
    reference: Annotated[
        int | None, typer.Option(help="Audits to compare with; as many as are asked for by default.")
    ] = None,
    have: Annotated[int | None, typer.Option(help="Say instead which drop so many audits show.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how many audits a drop of label accuracy takes to be seen (docs/audits.md). Nothing is drawn."""
    with clear_errors():
        answer: dict[str, float | int | None] = {"accuracy": accuracy, "power": power, "confidence": confidence}
        against = "as many before" if reference is None else f"{reference:,} before"
        if have is not None:
            smallest = detectable_drop(have, accuracy, power, confidence, reference)
            answer |= {"audits": have, "reference": reference, "drop": smallest}
            seen = "no drop" if smallest is None else f"a drop of {100 * smallest:.1f} points or more"
            text = f"{have:,} audits against {against} see {seen} from {accuracy:.0%}"
        else:
            needed = audits_needed(drop, accuracy, power, confidence, reference)
            answer |= {"audits": needed, "reference": reference, "drop": drop}
            text = f"{needed:,} audits against {against} see a drop of {100 * drop:g} points from {accuracy:.0%}"
        text += f", in {power:.0%} of cases (two-sided, {confidence:.0%})"
        print(json.dumps(answer, indent=1) if as_json else text)


@audit.command("draw")
def draw(
    run: RunName,
    iteration: Iteration,
    size: Annotated[
        int, typer.Option(help="How many in all; more than before extends the sample.", show_default=False)
    ],
    oracle: Annotated[str, typer.Option(help="Who is to grade them: human, or a judge's name.")] = "human",
    as_json: AsJson = False,
) -> None:
    """Draw a stratified sample of an iteration's pseudo-labels, or extend the one that there is."""
    with clear_errors():
        store = open_store(home().database)
        rows = draw_sample(store, run, iteration, oracle, size)
        with store.read() as session:
            strata = queries.audits.named_strata_of(session, run, iteration, oracle)
        counts = {name: sum(row.stratum == name for row in rows) for name in strata}
        if as_json:
            print(json.dumps({"oracle": oracle, "drawn": len(rows), "strata": counts}, indent=1))
            return
        print(f"{len(rows)} drawn for {oracle}: {', '.join(f'{n} {name}' for name, n in counts.items())}")


@audit.command("show")
def show(run: RunName, as_json: AsJson = False) -> None:
    """Show label accuracy by iteration and oracle, what was asked for it, and how far those who graded agree."""
    with clear_errors():
        with open_store(home().database).read() as session:
            queries.runs.get_run(session, run)
            audits = audits_of(session, run)
        if as_json:
            from services.api.audits import RunAudits  # FastAPI, half a second, for this alone

            print(RunAudits.of(audits).model_dump_json(indent=1, ensure_ascii=True))
            return
        console = Console()
        console.print(_accuracies([*audits.measured, *audits.estimated]))
        for line in _remarks(audits):
            console.print(line, markup=False, highlight=False)


def _accuracies(accuracies: Iterable[Accuracy]) -> Table:
    table = Table("iteration", "oracle", "over", "label accuracy", "95%", "audits", "of", "asked of", box=SIMPLE_HEAD)
    for accuracy in sorted(accuracies, key=lambda row: (row.oracle, row.over, row.iteration)):
        asked = {"all": "all", "sample": "a sample", None: "an estimate from p_hat"}[accuracy.frame]
        figure = accuracy.figure
        value = f"{figure.value:.3f}" if accuracy.frame else f"~ {figure.value:.3f}"
        counts = (f"{figure.n:,}", f"{accuracy.population:,}")
        cells = (str(accuracy.iteration), accuracy.oracle, accuracy.over)
        table.add_row(*cells, value, f"{figure.lo:.3f} to {figure.hi:.3f}", *counts, asked)
    return table


def _remarks(audits: Audits) -> Iterable[str]:
    for oracle, over, check in audits.checks:
        yield (
            f"from p_hat ({oracle}, {over}): each audited iteration, estimated from the others, is off by "
            f"{100 * check.error:.1f} points on average (bias {100 * check.bias:+.1f}); the interval held "
            f"{check.held} of {len(check.folds)}"
        )
    for agreement in (*audits.oracles, *audits.annotators):
        kappa = "cannot be told: both say the same of everything" if agreement.kappa is None else _text(agreement.kappa)
        yield f"kappa of {agreement.first} and {agreement.second}: {kappa}"


def _text(figure: Estimate) -> str:
    return f"{figure.value:.2f} ({figure.lo:.2f} to {figure.hi:.2f}, n = {figure.n:,})"
