"""`coevo audit plan` and `draw`, and `coevo show labels`: how many audits, of what, and what they say."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.statistics.audits import audits_needed, detectable_drop
from orchestrator.cli.terminal import AsJson, Iteration, Kept, RunName, opened, print_json, reading, wide
from services.oracles.accuracy import audits_of
from services.oracles.samples import draw_sample
from storage import queries


def plan(
    drop: Annotated[float, typer.Option(help="Drop of label accuracy to detect; 0.05 is five points.")] = 0.05,
    accuracy: Annotated[float, typer.Option(help="Label accuracy before the drop.")] = 0.8,
    power: Annotated[float, typer.Option(help="Probability of detecting the drop.")] = 0.8,
    confidence: Annotated[
        float,
        typer.Option(help="Confidence level: at 0.95, 5% of the comparisons report a change where there is none."),
    ] = 0.95,
    reference: Annotated[
        int | None, typer.Option(help="Number of earlier audits to compare with; by default as many as the new ones.")
    ] = None,
    have: Annotated[
        int | None, typer.Option(help="Compute instead the smallest drop that this many audits detect.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute how many audits it takes to detect a drop of label accuracy (docs/audits.md). Nothing is drawn."""
    result: dict[str, float | int | None] = {"accuracy": accuracy, "power": power, "confidence": confidence}
    earlier = "as many earlier ones" if reference is None else f"{reference:,} earlier ones"
    if have is not None:
        smallest = detectable_drop(have, accuracy, power, confidence, reference)
        result |= {"audits": have, "reference": reference, "drop": smallest}
        detected = "no drop" if smallest is None else f"a drop of {100 * smallest:.1f} points or more"
        text = f"{have:,} audits, compared with {earlier}, detect {detected} from {accuracy:.0%}"
    else:
        needed = audits_needed(drop, accuracy, power, confidence, reference)
        result |= {"audits": needed, "reference": reference, "drop": drop}
        detected = f"a drop of {100 * drop:g} points"
        text = f"{needed:,} audits, compared with {earlier}, detect {detected} from {accuracy:.0%}"
    text += f", in {power:.0%} of cases (two-sided, {confidence:.0%})"
    if as_json:
        print_json(result)
    else:
        print(text)


def draw(
    run: RunName,
    iteration: Iteration,
    size: Annotated[
        int, typer.Option(help="Size of the whole sample; a larger size than before extends it.", show_default=False)
    ],
    oracle: Annotated[str, typer.Option(help="Who will grade the sample: human, or a judge's name.")] = "human",
    kept: Kept = False,
    as_json: AsJson = False,
) -> None:
    """Draw a stratified sample of an iteration's pseudo-labels, or extend the existing one."""
    _, store = opened()
    with store.read() as session:
        run = queries.forks.made_by(session, run, iteration)
    rows = draw_sample(store, run, iteration, oracle, size, kept_only=kept)
    with store.read() as session:
        strata = queries.audits.named_strata_of(session, run, iteration, oracle)
    counts = {name: sum(row.stratum == name for row in rows) for name in strata}
    if as_json:
        print_json({"oracle": oracle, "drawn": len(rows), "strata": counts})
        return
    print(f"{len(rows)} drawn for {oracle}: {', '.join(f'{n} {name}' for name, n in counts.items())}")


def labels(run: RunName, as_json: AsJson = False) -> None:
    """Show label accuracy by iteration and oracle, the audits behind it, and how well the graders agree."""
    with reading() as session:
        queries.runs.get_run(session, run)
        audits = audits_of(session, run)
    if as_json:
        from services.api.routes.audits import RunAudits  # FastAPI takes half a second to import

        print(RunAudits.of(audits).model_dump_json(indent=1, ensure_ascii=True))
        return
    table = Table("iteration", "oracle", "over", "label accuracy", "95%", "audits", "of", "based on", box=SIMPLE_HEAD)
    accuracies = [*audits.measured, *audits.estimated]
    for accuracy in sorted(accuracies, key=lambda row: (row.oracle, row.over, row.iteration)):
        basis = {"all": "all", "sample": "a sample", None: "an estimate from p_hat"}[accuracy.frame]
        figure, about = accuracy.figure, "" if accuracy.frame else "~ "
        interval, counts = (
            f"{100 * figure.lo:.1f} to {100 * figure.hi:.1f}",
            (f"{figure.n:,}", f"{accuracy.population:,}"),
        )
        cells = (str(accuracy.iteration), accuracy.oracle, accuracy.over, f"{about}{100 * figure.value:.1f}%")
        table.add_row(*cells, interval, *counts, basis)
    wide().print(table)
    print_line = partial(wide().print, markup=False)
    for oracle, over, check in audits.checks:
        print_line(
            f"estimates from p_hat ({oracle}, {over}): when each audited iteration is estimated from the others, the "
            f"error is {100 * check.error:.1f} points on average; the interval contained the measured value in "
            f"{check.covered} of {len(check.folds)} iterations"
        )
    checked = {(oracle, over) for oracle, over, _ in audits.checks}
    for oracle, over in sorted({(row.oracle, row.over) for row in audits.estimated} - checked):
        print_line(
            f"estimates from p_hat ({oracle}, {over}): calibrated on one iteration, so the interval is too narrow"
        )
    for agreement in (*audits.oracles, *audits.annotators):
        shown = "undefined, since they have no verdict in common or gave every label the same one"
        if (kappa := agreement.kappa) is not None:
            shown = f"{kappa.value:.2f} ({kappa.lo:.2f} to {kappa.hi:.2f}, n = {kappa.n:,})"
        print_line(f"kappa of {agreement.first} and {agreement.second}: {shown}")
