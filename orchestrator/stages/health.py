"""The signals of an iteration's health, and the decision how the run continues.

The signals and thresholds are in `core.statistics.guard`. The result of `check_health` has the decision: `action`, and
`back_to`, the checkpoints that the run goes back to. If the action is to ask a person, the flow does so after the
stage, and the answer is the result of a separate stage, `ask_a_person`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from sqlalchemy.orm import Session

from core.settings.config import SelfTraining
from core.statistics.decline import Fall, fall_from
from core.statistics.estimates import Estimate
from core.statistics.guard import Action, Alarm, iteration_alarms, step_alarms, strongest
from core.statistics.standing import best_of
from core.types import Role
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context, solver_steps
from services.drift.series import figures_of_labels
from storage import queries

log = logging.getLogger(__name__)

Decision = Literal["go on", "roll back", "stop"]


def examine(context: Context) -> tuple[list[Alarm], dict[str, Any]]:
    """The alarms of iteration t and of its Solver's training, and the result of `check_health`."""
    with context.store.read() as session:
        signals = {**_label_signals(session, context), **_challenger_signals(session, context)}
        fall = _fall(session, context)
        signals |= _held_out_signals(session, context)
        steps = solver_steps(session, context.run, context.iteration)
        roll_backs = queries.ledger.rolled_back(session, context.run)
        best = context.chain(session).best()
    guard = context.config.guard
    ill_posed = signals.get("ill_posed_share") or {}
    of_questions = {**signals, "ill_posed_share": ill_posed.get("value")}
    if isinstance(context.config, SelfTraining):
        of_questions = {}  # no Challenger wrote them
    alarms = [*_first_step_alarms(steps, context), *iteration_alarms(guard, fall, of_questions)]
    action, warnings = strongest(alarms), [alarm.text for alarm in alarms]
    stopping = context.config.early_stopping
    # A roll back restarts the count, because the iterations that it discarded say nothing about those after it.
    without_progress = context.iteration - max(best, *(t for t, _ in roll_backs), 0)
    if stopping is not None and without_progress >= stopping.patience:
        warnings.append(
            f"no better Solver for {without_progress} iterations on {stopping.benchmark}: the best is iteration {best}"
        )
        action = "stop"
    if action == "roll_back" and len(roll_backs) >= guard.max_roll_backs:
        warnings.append(
            f"the run has gone back {len(roll_backs)} times already, the most that guard.max_roll_backs allows"
        )
        action = "stop"
    return alarms, {
        "signals": signals,
        "alarms": [_storable(alarm) for alarm in alarms],
        "warnings": warnings,
        "action": action,
        "best": best,
        "back_to": _back_to(context, action),
    }


def decided(context: Context, decision: Decision, note: str) -> LastWrite:
    """Store a person's decision in the form of `check_health`'s result."""
    actions: dict[Decision, Action] = {"go on": "warn", "roll back": "roll_back", "stop": "stop"}
    action = actions[decision]
    with context.store.read() as session:
        best = context.chain(session).best()
    back_to = _back_to(context, action)
    return lambda _session: {"action": action, "note": note, "best": best, "back_to": back_to}


def _back_to(context: Context, action: Action) -> dict[Role, str] | None:
    """The checkpoints that an action goes back to: role -> id.

    A run that stops ends with the best iteration of all, even if that one raised the alarm. A run that is rolled back
    continues from the best earlier iteration; otherwise it could run into the same problem again.
    """
    if action not in ("stop", "roll_back"):
        return None
    with context.store.read() as session:
        chain = context.chain(session)
        return chain.checkpoints_at(chain.best() if action == "stop" else chain.best_to_go_back_to())


def _first_step_alarms(steps: Sequence[dict[str, float]], context: Context) -> list[Alarm]:
    """For each signal of the training, the alarm at the first step that raised it."""
    first_alarms: dict[str, Alarm] = {}
    history = context.training_history()
    for end in range(1, len(steps) + 1):
        for alarm in step_alarms(steps[:end], context.config.guard, history):
            first_alarms.setdefault(alarm.signal, alarm)
    return list(first_alarms.values())


def _label_signals(session: Session, context: Context) -> dict[str, Any]:
    """Label accuracy and the ill-posed share, as `audit_labels` has stored them."""
    oracle = context.config.audit.label
    if oracle is None or isinstance(context.config, SelfTraining):
        return {}
    stored = figures_of_labels(session, context.run, context.iteration, oracle)
    return {
        "label_accuracy_kept": _figure(stored.get(("label_accuracy", "kept"))),
        "ill_posed_share": _figure(stored.get(("ill_posed_share", "all"))),
    }


def _challenger_signals(session: Session, context: Context) -> dict[str, Any]:
    """How much the Challenger repeats itself.

    The larger of two shares: the questions of its last training step that share a cluster with another question, and
    the duplicates among the candidates.
    """
    stats = queries.figures.filter_stats_of(session, context.run).get(context.iteration)
    if stats is None or not stats.candidates:
        return {}
    clustered = queries.figures.train_metrics_of(
        session, context.run, iteration=context.iteration, role="challenger", name="repeated_share"
    )
    last = clustered[-1].value if clustered else None
    return {"repetition_share": max(stats.duplicate / stats.candidates, last or 0.0)}


def _held_out_signals(session: Session, context: Context) -> dict[str, Any]:
    chain = context.chain(session)
    pass_at_1, rolled_back = chain.pass_at_1(), chain.rolled_back()
    standing = [value for t, value in enumerate(pass_at_1) if value is not None and t not in rolled_back]
    return {"pass_at_1": pass_at_1[-1], "best_pass_at_1": max(standing, default=None)}


def _fall(session: Session, context: Context) -> Fall | None:
    """How far pass@1 is below that of the best earlier iteration that the run was not rolled back from."""
    chain = context.chain(session)
    *earlier, now = chain.pass_at_1()
    rolled_back = chain.rolled_back()
    standing = {t: value for t, value in enumerate(earlier) if value is not None and t not in rolled_back}
    best = best_of(standing)
    if best is None or now is None:
        return None
    return fall_from(chain.results(best), chain.results(context.iteration), len(standing), context.config.alerts)


def _storable(alarm: Alarm) -> dict[str, Any]:
    """An alarm as JSON. JSON has no infinity, so a KL that overflowed becomes the largest finite number."""
    fields, largest = asdict(alarm), sys.float_info.max
    return {**fields, **{name: max(-largest, min(largest, fields[name])) for name in ("value", "threshold")}}


def _figure(figure: Estimate | None) -> dict[str, Any]:
    return {"value": None, "ci95": None, "n": 0} if figure is None else figure.as_json()
