"""`coevo audit judge`: ask a language model about the pseudo-labels of an iteration that is done."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import typer

from core.settings.audit import Audit
from core.settings.parsing import parse_config
from core.statistics.audits import AuditError
from orchestrator.cli.terminal import AsJson, RunName, clear_errors, setting
from orchestrator.installation.home import home
from orchestrator.stages.auditing import ask_judge
from services.drift.alerts import raise_alerts
from services.drift.series import refresh_labels
from services.inference.keys import keys_of
from storage.session import open_store

_LONGEST_NAME = 34  # with `judge_` before it 40 characters, the most that an oracle's name may have


def judge(
    run: RunName,
    iteration: Annotated[int, typer.Argument(help="Iteration of the run.", show_default=False, min=0)],
    url: Annotated[
        str, typer.Option(help="URL of an OpenAI-compatible service, up to and including /v1.", show_default=False)
    ],
    model: Annotated[str, typer.Option(help="Name of the model at the service.", show_default=False)],
    size: Annotated[
        int | None, typer.Option(help="Number of pseudo-labels to draw; by default all.", show_default=False)
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The verdicts are stored as those of judge_NAME; by default NAME is made from model and prompt.",
            show_default=False,
        ),
    ] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the API key of the service.", show_default=False)
    ] = None,
    prompt: Annotated[
        str, typer.Option(help="Prompt of the judge: annotate; or equivalence, if the questions came with answers.")
    ] = "annotate",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another setting of the table audit.judge: samples=3. May be given more than once."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a language model whether an iteration's pseudo-labels are right, and store its verdicts (docs/judge.md).

    Labels that this judge has graded before are not asked again. If the command is interrupted, run it again to go on.
    """
    options = {"url": url, "model": model, "prompt": prompt, "key_variable": key_variable}
    options["name"] = name or _name_of(model, prompt)
    with clear_errors():
        audit = _audit({**options, **dict(map(setting, settings or []))}, size)
        keys_of(audit.services)
        assert audit.judge is not None
        store = open_store(home().database)
        result = ask_judge(store, run, iteration, audit.judge, audit.sample, _print_progress)
        if not result["population"]:
            raise AuditError(f"run {run}, iteration {iteration}: no question has a pseudo-label to be audited")
        with store.write() as session:
            refresh_labels(session, run, iteration)
            alerts = raise_alerts(session, run, iteration)
        print(json.dumps(result, indent=1) if as_json else _text(result))
        for alert in alerts:
            print(f"{alert.severity}: iteration {alert.iteration}: {alert.text}", file=sys.stderr)


def _audit(judge: dict[str, Any], size: int | None) -> Audit:
    """The settings, checked in the same way as those of a preset."""
    tree = {"audit": {"oracle": "judge", "sample": size, "judge": judge}}
    return parse_config(tree, source="coevo audit judge").audit


def _name_of(model: str, prompt: str) -> str:
    """A name made from model and prompt, so that their verdicts are kept apart: `gpt_4o`, `gpt_4o_equivalence`."""
    suffix = "" if prompt == "annotate" else f"_{prompt}"
    plain = re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_") or "model"
    return plain[: _LONGEST_NAME - len(suffix)] + suffix


def _print_progress(done: int, total: int, what: str) -> None:
    print(f"{done} of {total} {what}", file=sys.stderr, flush=True)


def _text(result: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(result["verdicts"].items()))
    lines = [f"{result['oracle']}: {result['audited']} of {result['population']} pseudo-labels audited: {counts}"]
    if (accuracy := result["sentinels"]) is not None:
        lo, hi = accuracy["ci95"]
        lines.append(
            f"it judged {accuracy['value']:.1%} of {accuracy['n']} questions of known answer correctly "
            f"(95%: {lo:.1%} to {hi:.1%}); {result['thrown_away']} batches were thrown away"
        )
        lines.append(f"{result['prompt_tokens']} tokens of prompts, {result['reply_tokens']} of replies")
    return "\n".join(lines)
