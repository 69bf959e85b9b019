"""`coevo audit judge` and `recheck`: ask a language model about pseudo-labels, or about the answers of evaluations."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from core.asking.judge import Judge, judge_name
from core.settings.parsing import parse_config, validated
from core.statistics.audits import AuditError
from orchestrator.cli.evaluation_tables import show
from orchestrator.cli.terminal import (
    AsJson,
    Iteration,
    Kept,
    LogFormat,
    RunName,
    opened,
    overrides_of,
    print_json,
    print_progress,
)
from orchestrator.evaluation.rechecking import recheck as ask_again
from orchestrator.stages.audit_labels import ask_judge
from services.drift.alerts import raise_alerts
from services.drift.series import refresh_labels
from services.evaluations.figures import figures_of
from services.inference.keys import keys_of
from storage import queries

Url = Annotated[
    str, typer.Option(help="URL of an OpenAI-compatible service, up to and including /v1.", show_default=False)
]
Model = Annotated[str, typer.Option(help="Name of the model at the service.", show_default=False)]
Name = Annotated[
    str | None,
    typer.Option(
        help="The verdicts are stored as those of judge_NAME; by default NAME is made from model and prompt.",
        show_default=False,
    ),
]
KeyVariable = Annotated[
    str | None, typer.Option(help="Environment variable with the API key of the service.", show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Another setting of the table audit.judge: samples=3. May be given more than once."),
]


def judge(
    run: RunName,
    iteration: Iteration,
    url: Url,
    model: Model,
    size: Annotated[
        int | None, typer.Option(help="Number of pseudo-labels to draw; by default all.", show_default=False)
    ] = None,
    kept: Kept = False,
    name: Name = None,
    key_variable: KeyVariable = None,
    prompt: Annotated[
        str, typer.Option(help="Prompt of the judge: annotate; or equivalence, if the questions came with answers.")
    ] = "annotate",
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Ask a language model whether an iteration's pseudo-labels are right, and store its verdicts (docs/audits.md).

    Labels that this judge has graded before are not asked again. If the command is interrupted, run it again to go on.
    """
    options = _options_of(url, model, prompt, name, key_variable, settings)
    tree = {"audit": {"oracle": "judge", "sample": size, "judge": options}}
    audit = parse_config(tree, source="coevo audit judge").audit  # checked in the same way as a preset's
    keys_of(audit.services)
    assert audit.judge is not None
    _, store = opened()
    with store.read() as session:
        run = queries.forks.made_by(session, run, iteration)
    result = ask_judge(store, run, iteration, audit.judge, audit.sample, print_progress, kept_only=kept)
    if not result["population"]:
        question = "kept question" if kept else "question"
        raise AuditError(f"run {run}, iteration {iteration}: no {question} has a pseudo-label to be audited")
    with store.write() as session:
        refresh_labels(session, run, iteration)
        alerts = raise_alerts(session, run, iteration)
    if as_json:
        print_json(result)
    else:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(result["verdicts"].items()))
        print(f"{result['oracle']}: {result['audited']} of {result['population']} pseudo-labels audited: {counts}")
        for line in _cost_lines(result):
            print(line)
    for alert in alerts:
        print(f"{alert.severity}: iteration {alert.iteration}: {alert.text}", file=sys.stderr)


def recheck(
    evaluations: Annotated[
        list[str], typer.Argument(help="Ids of evaluations, which coevo evaluate prints.", show_default=False)
    ],
    url: Url,
    model: Model,
    failures: Annotated[
        bool, typer.Option("--failures", help="Ask only about the answers that the grader calls wrong.")
    ] = False,
    name: Name = None,
    key_variable: KeyVariable = None,
    settings: Settings = None,
    as_json: AsJson = False,
    _log_format: LogFormat = None,
) -> None:
    """Ask a language model whether the answers of evaluations are right, and print the accuracy by grader and by judge.

    The evaluated model is not asked again. Answers that this judge has judged before are not asked about again. If the
    command is interrupted, run it again to go on (docs/evaluation.md).
    """
    options = _options_of(url, model, "equivalence", name, key_variable, settings)
    asked = validated(Judge, options, "coevo audit recheck")
    keys_of([asked])
    _, store = opened()
    costs = [ask_again(store, key, asked, print_progress, failures_only=failures) for key in evaluations]
    with store.read() as session:
        figures = [rechecked for key in evaluations if (rechecked := figures_of(session, key))]
    if as_json:
        results = [cost | {"figures": rechecked} for cost, rechecked in zip(costs, figures, strict=True)]
        print(TypeAdapter(list[dict[str, Any]]).dump_json(results, indent=1, ensure_ascii=True).decode())
        return
    show(figures)
    for cost in costs:
        for line in _cost_lines(cost):
            print(f"{cost['evaluation']}: {line}")


def _options_of(
    url: str, model: str, prompt: str, name: str | None, key_variable: str | None, settings: list[str] | None
) -> dict[str, Any]:
    """The table `audit.judge` that the options of a command describe, not yet checked."""
    options = {"url": url, "model": model, "prompt": prompt, "key_variable": key_variable}
    return {**options, "name": name or judge_name(model, prompt), **overrides_of(settings)}


def _cost_lines(result: dict[str, Any]) -> list[str]:
    """What the judge was asked this time: its accuracy on sentinels, and the tokens. Empty if nothing was asked."""
    if (accuracy := result["sentinels"]) is None:
        return []
    lo, hi = accuracy["ci95"]
    return [
        f"it judged {accuracy['value']:.1%} of {accuracy['n']} questions of known answer correctly "
        f"(95%: {lo:.1%} to {hi:.1%}); {result['thrown_away']} batches were thrown away",
        f"{result['prompt_tokens']} tokens of prompts, {result['reply_tokens']} of replies",
    ]
