"""`check_health`: what an iteration's figures say about the run's health, and what is to be done about it.

The signals and thresholds are `core.statistics.guard`'s. What the stage decides is in its result: `action`, and
`back_to`, the checkpoints that the run goes back to. Where a person is to decide, the flow asks after the stage, and
the answer is the result of a stage of its own, `ask_a_person`.

The stage's last write has the iteration's series, and its alerts: the guard's alarms, and what
`core.statistics.changes` finds.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence, Set
from dataclasses import asdict
from typing import Any, Literal

from sqlalchemy.orm import Session

from core.settings.config import SelfTraining
from core.statistics.estimates import Estimate
from core.statistics.guard import Action, Alarm, iteration_alarms, step_alarms, strongest
from core.types import Role
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context, solver_steps
from services.drift.alerts import record
from services.drift.series import accuracies, ill_posed_in
from services.oracles.accuracy import measured_in
from storage import queries

log = logging.getLogger(__name__)

Decision = Literal["go on", "roll back", "stop"]


def check_health(context: Context) -> LastWrite:
    """The alarms of iteration t, of each step of its Solver's training and of the whole, and the strongest action."""
    with context.store.read() as session:
        signals = {**_label_signals(session, context), **_challenger_signals(session, context)}
        signals |= _held_out_signals(session, context)
        steps = solver_steps(session, context.run, context.iteration)
        back = queries.ledger.rolled_back(session, context.run)
        best = _best(session, context)
        before = _best(session, context, without={context.iteration, *_left(session, context)})
    guard = context.config.guard
    ill_posed = signals.get("ill_posed_share") or {}
    alarms = [
        *_first_of_each(steps, context),
        *iteration_alarms({**signals, "ill_posed_share": ill_posed.get("value")}, guard),
    ]
    action, warnings = strongest(alarms), [alarm.text for alarm in alarms]
    stopping = context.config.early_stopping
    # A roll back starts the count anew: what it threw away says nothing of what came after.
    stale = context.iteration - max(best, *(t for t, _ in back), 0)
    if stopping is not None and stale >= stopping.patience:
        warnings.append(
            f"no better Solver for {stale} iterations by {stopping.benchmark}: the best is iteration {best}"
        )
        action = "stop"
    if action == "roll_back" and len(back) >= guard.max_roll_backs:
        warnings.append(f"the run has gone back {len(back)} times already, as often as guard.max_roll_backs lets it")
        action = "stop"
    for warning in warnings:
        log.warning("run %s, iteration %d: %s", context.run, context.iteration, warning)
    result = {
        "signals": signals,
        "alarms": [_storable(alarm) for alarm in alarms],
        "warnings": warnings,
        "action": action,
        "best": best,
        "back_to": _back_to(context, action, best, before),
    }

    def last_write(session: Session) -> dict[str, Any]:
        for alert in record(session, context.run, context.iteration, alarms):
            if alert.rule not in {alarm.signal for alarm in alarms}:
                log.warning("run %s, iteration %d: %s", context.run, context.iteration, alert.text)
        return result

    return last_write


def decided(context: Context, decision: Decision, note: str) -> LastWrite:
    """What a person said: as the action of `check_health`, with where the run goes back to."""
    actions: dict[Decision, Action] = {"go on": "warn", "roll back": "roll_back", "stop": "stop"}
    action = actions[decision]
    with context.store.read() as session:
        best = _best(session, context)
        before = _best(session, context, without={context.iteration, *_left(session, context)})
    back_to = _back_to(context, action, best, before)
    return lambda _session: {"action": action, "note": note, "best": best, "back_to": back_to}


def _back_to(context: Context, action: Action, best: int, before: int) -> dict[Role, str] | None:
    """The checkpoints that an action goes back to. A run that stops ends with the best of all, be it that which raised
    the alarm; one that goes on does so from the best before that, or it would run into the same again."""
    to = {"stop": best, "roll_back": before}.get(action)
    return None if to is None else _checkpoints_at(context, to)


def _first_of_each(steps: Sequence[dict[str, float]], context: Context) -> list[Alarm]:
    """Each signal of the training at the first step where it showed."""
    first: dict[str, Alarm] = {}
    before = context.training_history()
    for end in range(1, len(steps) + 1):
        for alarm in step_alarms(steps[:end], context.config.guard, before):
            first.setdefault(alarm.signal, alarm)
    return list(first.values())


def _label_signals(session: Session, context: Context) -> dict[str, Any]:
    """What the series have: an oracle that graded a sample is weighted to all pseudo-labels."""
    oracle = context.config.audit.label
    if oracle is None or isinstance(context.config, SelfTraining):
        return {}
    measured = measured_in(session, context.run, context.iteration, oracle)
    accuracy = {of_slice.over: of_slice.figure for of_slice in measured}
    ill_posed = ill_posed_in(session, context.run, context.iteration, oracle)
    return {
        "label_accuracy_kept": _figure(accuracy.get("kept")),
        "ill_posed_share": _figure(ill_posed.get("all")),
    }


def _challenger_signals(session: Session, context: Context) -> dict[str, Any]:
    """How much the Challenger repeats itself: the share of its last step's questions that are in a cluster with
    another, or of duplicates among the candidates, whichever is greater."""
    stats = queries.figures.filter_stats_of(session, context.run).get(context.iteration)
    if stats is None or not stats.candidates:
        return {}
    clustered = queries.figures.train_metrics_of(
        session, context.run, iteration=context.iteration, role="challenger", name="repeated_share"
    )
    last = clustered[-1].value if clustered else None
    return {"repetition_share": max(stats.duplicate / stats.candidates, last or 0.0)}


def _held_out_signals(session: Session, context: Context) -> dict[str, Any]:
    seen, left = _held_out(session, context), _left(session, context)
    values = [value for t, value in enumerate(seen) if value is not None and t not in left]
    return {"pass_at_1": seen[-1], "best_pass_at_1": max(values, default=None)}


def _held_out(session: Session, context: Context) -> list[float | None]:
    """pass@1 of iterations 0 to t, by what early stopping goes by, or the evaluation's benchmark."""
    stopping = context.config.early_stopping
    benchmark = stopping.benchmark if stopping else context.config.evaluation.benchmark
    known = accuracies(session, context.run, benchmark)
    return [known[t].pass_at_1.value if t in known else None for t in range(context.iteration + 1)]


def _left(session: Session, context: Context) -> set[int]:
    """The iterations whose alarm made the run go back: early in its hacking a policy may well be the best."""
    return {t for t, _ in queries.ledger.rolled_back(session, context.run)}


def _best(session: Session, context: Context, without: Set[int] = frozenset()) -> int:
    """The iteration with the highest pass@1, the first of equals."""
    seen = _held_out(session, context)
    known = [t for t in range(len(seen)) if t not in without]
    return max(known, key=lambda t: (seen[t] if seen[t] is not None else -1.0, -t))


def _checkpoints_at(context: Context, iteration: int) -> dict[Role, str]:
    """What each role was trained to in an iteration, in one that the run has left too: its Solver was judged as that;
    or what it held."""
    with context.store.read() as session:
        trained = {
            role: checkpoint.id
            for role in context.config.roles
            for checkpoint in queries.checkpoints.checkpoints_of(session, context.run, role)
            if checkpoint.iteration == iteration
        }
    return {role: trained.get(role) or context.checkpoint(role, iteration).id for role in context.config.roles}


def _storable(alarm: Alarm) -> dict[str, Any]:
    """An alarm as JSON, which has no infinity: a KL that ran over is the largest number there is."""
    fields, largest = asdict(alarm), sys.float_info.max
    return {**fields, **{name: max(-largest, min(largest, fields[name])) for name in ("value", "threshold")}}


def _figure(figure: Estimate | None) -> dict[str, Any]:
    return {"value": None, "ci95": None, "n": 0} if figure is None else figure.as_json()
