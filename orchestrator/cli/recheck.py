"""`coevo audit recheck`: ask a language model about the answers of stored evaluations."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from core.settings.audit import Judge
from core.settings.parsing import validated
from orchestrator.cli.evaluation_tables import show
from orchestrator.cli.judge import KeyVariable, Model, Name, Settings, Url, cost_lines, options_of
from orchestrator.cli.terminal import AsJson, LogFormat, opened, print_progress
from orchestrator.evaluation.rechecking import recheck as ask
from services.evaluations.figures import figures_of
from services.inference.keys import keys_of


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
    options = options_of(url, model, "equivalence", name, key_variable, settings)
    judge = validated(Judge, options, "coevo audit recheck")
    keys_of([judge])
    _, store = opened()
    costs = [ask(store, key, judge, print_progress, failures_only=failures) for key in evaluations]
    with store.read() as session:
        figures = [rechecked for key in evaluations if (rechecked := figures_of(session, key))]
    if as_json:
        results = [cost | {"figures": rechecked} for cost, rechecked in zip(costs, figures, strict=True)]
        print(TypeAdapter(list[dict[str, Any]]).dump_json(results, indent=1, ensure_ascii=True).decode())
        return
    show(figures)
    for cost in costs:
        for line in cost_lines(cost):
            print(f"{cost['evaluation']}: {line}")
