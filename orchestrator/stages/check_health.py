"""Finds the alarms of iteration t and of the steps of its Solver's training, and decides how the run continues.

The signals and thresholds are in `core.statistics.guard`. The result has the decision: `action`, and `back_to`, the
checkpoints that the run goes back to. If the action is to ask a person, the flow does so after the stage, and the
answer is the result of a separate stage, `ask_a_person`.

The last write stores the iteration's alerts: the alarms, and the changes that `core.statistics.changes` finds in the
series, which the stages before have stored.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from core.settings.config import SelfTraining
from core.statistics.decline import Fall, fall_from
from core.statistics.guard import Alarm, Sign, iteration_alarms, step_alarms, strongest
from core.statistics.standing import best_of
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context, solver_steps
from services.drift.alerts import record, signs_at, untested_in
from services.drift.series import figures_of_labels
from storage import queries

log = logging.getLogger(__name__)


def check_health(context: Context) -> LastWrite:
    run, t, config, guard = context.run.name, context.iteration, context.config, context.config.guard
    with context.store.read() as session:
        signs = signs_at(session, run, t)
        best, roll_backs = context.chain(session).best(), queries.ledger.rolled_back(session, run)
    signals, alarms = alarms_of(context, signs)
    action, warnings = strongest(alarms), [alarm.text for alarm in alarms]
    stopping = config.early_stopping
    # A roll back restarts the count, because the iterations that it discarded say nothing about those after it.
    without_progress = t - max(best, *(i for i, _ in roll_backs), 0)
    if stopping is not None and without_progress >= stopping.patience:
        warnings.append(
            f"no better Solver for {without_progress} iterations on {stopping.benchmark}: the best is iteration {best}"
        )
        action = "stop"
    if action == "roll_back" and len(roll_backs) >= guard.max_roll_backs:
        warnings.append(f"the run has gone back {len(roll_backs)} times already, the most that the guard allows")
        action = "stop"
    with context.store.read() as session:
        back_to = context.chain(session).back_to(action)
    for warning in warnings:
        log.warning("run %s, iteration %d: %s", run, t, warning)
    result = {
        "signals": signals,
        "alarms": [_storable(alarm) for alarm in alarms],
        "warnings": warnings,
        "action": action,
        "best": best,
        "back_to": back_to,
    }

    def last_write(session: Session) -> dict[str, Any]:
        for alert in record(session, run, t, alarms):
            if alert.rule not in {alarm.signal for alarm in alarms}:
                log.warning("run %s, iteration %d: %s", run, t, alert.text)
        return {**result, "untested": untested_in(session, run, t)}

    return last_write


def alarms_of(context: Context, signs: Iterable[Sign]) -> tuple[dict[str, Any], list[Alarm]]:
    """The figures that the guard looks at, and its alarms, by the stored rows and the signs in the series of the
    context's iteration."""
    run, t, config, guard = context.run.name, context.iteration, context.config, context.config.guard
    with context.store.read() as session:
        signals = _signals_of_questions(session, context)
        steps, chain = solver_steps(session, run, t), context.chain(session)
        pass_at_1, rolled_back = chain.pass_at_1(), chain.rolled_back()
        standing = {i: value for i, value in enumerate(pass_at_1) if value is not None and i not in rolled_back}
        # How far pass@1 is below that of the best earlier iteration that the run was not rolled back from.
        fall: Fall | None = None
        earlier = {i: value for i, value in standing.items() if i < t}
        if (before := best_of(earlier)) is not None and pass_at_1[t] is not None:
            fall = fall_from(chain.results(before), chain.results(t), len(earlier), config.alerts)
    signals |= {"pass_at_1": pass_at_1[t], "best_pass_at_1": max(standing.values(), default=None)}

    first_alarms: dict[str, Alarm] = {}  # of each signal of the training, at the first step that raised it
    history = context.training_history()
    for end in range(1, len(steps) + 1):
        for alarm in step_alarms(steps[:end], guard, history):
            first_alarms.setdefault(alarm.signal, alarm)
    of_questions = {**signals, "ill_posed_share": (signals.get("ill_posed_share") or {}).get("value")}
    if isinstance(config, SelfTraining):
        of_questions = {}  # no Challenger wrote them
    return signals, [*first_alarms.values(), *iteration_alarms(guard, fall, of_questions, signs)]


def _signals_of_questions(session: Session, context: Context) -> dict[str, Any]:
    """Label accuracy and the ill-posed share, as `audit_labels` has stored them, and how much the Challenger repeats
    itself.

    The latter is the larger of two shares: the questions of its last training step that share a cluster with another
    question, and the duplicates among the candidates.
    """
    run, t, signals = context.run.name, context.iteration, dict[str, Any]()
    oracle = context.config.audit.label
    if oracle is not None and not isinstance(context.config, SelfTraining):
        stored = figures_of_labels(session, run, t, oracle)
        for name, figure in (
            ("label_accuracy_kept", stored.get(("label_accuracy", "kept"))),
            ("ill_posed_share", stored.get(("ill_posed_share", "all"))),
        ):
            signals[name] = {"value": None, "ci95": None, "n": 0} if figure is None else figure.as_json()
    stats = queries.figures.filter_stats_of(session, run).get(t)
    if stats is not None and stats.candidates:
        clustered = queries.figures.train_metrics_of(
            session, run, iteration=t, role="challenger", name="repeated_share"
        )
        last = clustered[-1].value if clustered else None
        signals["repetition_share"] = max(stats.duplicate / stats.candidates, last or 0.0)
    return signals


def _storable(alarm: Alarm) -> dict[str, Any]:
    """An alarm as JSON. JSON has no infinity, so a KL that overflowed becomes the largest finite number."""
    fields, largest = asdict(alarm), sys.float_info.max
    return {**fields, **{name: max(-largest, min(largest, fields[name])) for name in ("value", "threshold")}}
