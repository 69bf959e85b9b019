"""`check_health`: what an iteration's figures say about the run's health, stored as the stage's result and logged.

The signals are those of R-Zero B.2 and H (decline after an early peak, falling label accuracy) and of a Challenger that
cheats (ill-posed questions). What acts on them comes with the collapse guard.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy.orm import Session

from core.drift import wilson
from core.types import checkpoint_id
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context
from storage import queries

log = logging.getLogger(__name__)

_ILL_POSED_WARNING = 0.2
_DECLINE_WARNING = 0.03


def check_health(context: Context) -> LastWrite:
    """Signals of iteration t: label accuracy, ill-posed share, held-out pass@1 against its best so far."""
    with context.store.read() as session:
        signals = {**_label_signals(session, context), **_held_out_signals(session, context)}
    warnings = [*_warnings(signals)]
    for warning in warnings:
        log.warning("run %s, iteration %d: %s", context.run, context.iteration, warning)
    return lambda _session: {"signals": signals, "warnings": warnings}


def _label_signals(session: Session, context: Context) -> dict[str, Any]:
    oracle = context.config.audit.oracle
    if oracle is None:
        return {}
    audited = queries.oracle_labels_of(session, context.run, context.iteration, oracle)
    kept = {label.question_id for label in queries.labels_of(session, context.run, context.iteration, "kept")}
    over_kept = [label for label in audited if label.question_id in kept]
    right = sum(label.verdict == "right" for label in over_kept)
    ill_posed = sum(label.verdict == "ill_posed" for label in audited)
    return {
        "label_accuracy_kept": _share(right, len(over_kept)),
        "ill_posed_share": _share(ill_posed, len(audited)),
    }


def _held_out_signals(session: Session, context: Context) -> dict[str, Any]:
    def pass_at_1(t: int) -> float | None:
        checkpoint = checkpoint_id(context.run, "solver" if t else "base", t)
        items = queries.evaluations_of(session, checkpoint, context.config.evaluation.benchmark)
        return sum(item.correct / item.samples for item in items) / len(items) if items else None

    now = pass_at_1(context.iteration)
    seen = [value for t in range(context.iteration + 1) if (value := pass_at_1(t)) is not None]
    return {"pass_at_1": now, "best_pass_at_1": max(seen, default=None)}


def _share(count: int, n: int) -> dict[str, Any]:
    return {"value": count / n if n else None, "ci95": wilson(count, n), "n": n}


def _warnings(signals: dict[str, Any]) -> list[str]:
    found = []
    ill_posed = signals.get("ill_posed_share", {}).get("value")
    if ill_posed is not None and ill_posed > _ILL_POSED_WARNING:
        found.append(f"{ill_posed:.0%} of the Challenger's questions are ill-posed")
    now, best = signals["pass_at_1"], signals["best_pass_at_1"]
    if now is not None and best is not None and best - now > _DECLINE_WARNING:
        found.append(f"held-out pass@1 is {now:.1%}, down from {best:.1%}")
    return found
