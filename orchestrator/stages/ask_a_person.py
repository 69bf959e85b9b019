"""Asks a person how a paused run goes on: the form's text in Prefect, and the answer in the form of `check_health`."""

from __future__ import annotations

from typing import Literal

from sqlalchemy.orm import Session

from core.statistics.guard import Action, alarm_if
from core.types import Stage, StageKey
from orchestrator.ledger import LastWrite
from orchestrator.reporting.results import as_markdown, stage_result
from orchestrator.stages.chain import Chain
from orchestrator.stages.context import Context
from storage import queries

Decision = Literal["go on", "roll back", "stop"]
_ACTIONS: dict[Decision, Action] = {"go on": "warn", "roll back": "roll_back", "stop": "stop"}


def ask_a_person(context: Context, decision: Decision, note: str) -> LastWrite:
    """Store what the person decided."""
    action = _ACTIONS[decision]
    with context.store.read() as session:
        chain = context.chain(session)
        result = {"action": action, "note": note, "best": chain.best(), "back_to": chain.back_to(action)}
    return lambda _session: result


def description(session: Session, run: str, t: int, page: str) -> str:
    """The alarms of iteration t with their thresholds, its figures with n and intervals, and what the answers do.

    The text is Markdown, without tables, since the form is narrow and cuts them off. `page` is the iteration's page on
    the dashboard, or empty. Raises `NotThere`.
    """
    chain = Chain(session, run, queries.runs.config_of_run(session, run), t)
    best, back = chain.best(), chain.best_to_go_back_to()
    link = f" [Iteration {t} on the dashboard]({page})" if page else ""

    # The alarms, and warnings that are none, such as that the run was rolled back as often as it may be.
    health = queries.ledger.result_of(session, run, t, "check_health") or {}
    why, alarms = list[str](), health.get("alarms", [])
    for alarm in alarms:
        text, threshold = alarm["text"], alarm_if(alarm["signal"], alarm["threshold"])
        why.append(f"**{alarm['signal']}**: {as_markdown(f'{text}; it is an alarm if {threshold}')}")
    texts = [alarm["text"] for alarm in alarms]
    why += [as_markdown(warning) for warning in health.get("warnings", []) if warning not in texts]

    # Those of the iteration's evaluation and audit, and the accuracy of the iteration that a roll back goes to.
    figures = list[str]()
    stages: tuple[tuple[int, Stage], ...] = ((t, "evaluate"), (t, "audit_labels"), (back, "evaluate"))
    for iteration, stage in stages:
        if (result := queries.ledger.result_of(session, run, iteration, stage)) is not None:
            key = StageKey(run, iteration, stage)
            figures.append(as_markdown(f"{_named(iteration)}: {stage_result(session, key, result).line}"))

    answers = [
        f"**go on** continues with the models of iteration {t}",
        f"**roll back** continues with those of {_named(back)}, the best earlier one by pass@1",
        f"**stop** ends the run with the Solver of {_named(best)}, the best one by pass@1",
    ]
    parts = [f"**Run {run} is paused after iteration {t}.**{link}"]
    for title, lines in (("Why:", why), ("Figures:", figures), ("Answers:", answers)):
        if lines:  # a list has a title, without which Markdown would join it to the one before
            parts.append("\n".join([title, "", *(f"- {line}" for line in lines)]))
    return "\n\n".join(parts)


def _named(iteration: int) -> str:
    return f"iteration {iteration}" if iteration else "iteration 0 (the base model)"
