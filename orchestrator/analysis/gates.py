"""What gates make of an iteration's stored votes, each by itself: how many questions they admit, and how many labels of
these are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from core.challenger.gates import GATES, Known
from core.settings.config import CoEvolution, RunConfig
from core.statistics.estimates import share
from orchestrator.stages.admit_questions import audits_before, candidates_of, states_before
from orchestrator.stages.chain import Chain
from storage import queries


def replayed_gates(session: Session, run: str, iteration: int, config: RunConfig) -> dict[str, Any]:
    """Gate -> its figures over the questions that the band kept: of the gates that need the votes alone, with their
    defaults, and of the run's own. A gate that models were asked for has only the questions that they were asked about.
    """
    if not isinstance(config, CoEvolution):
        return {}
    voted, in_band = candidates_of(queries.questions.labels_of(session, run, iteration), config, iteration)
    states = states_before(session, Chain(session, run, config, iteration))
    oracle, audits = config.audit.label, audits_before(session, run, iteration, config)
    labels = queries.questions.oracle_labels_of(session, run, iteration, oracle) if oracle else []
    is_right = {label.question_id: label.verdict == "right" for label in labels}
    of_votes = [
        kind.model_validate({"type": name})
        for name, kind in GATES.items()
        if kind.needs is None and not any(setting.is_required() for setting in kind.model_fields.values())
    ]
    figures = dict[str, Any]()
    for gate in {gate.type: gate for gate in (*of_votes, *config.gates)}.values():
        evidence = queries.questions.evidence_of(session, run, iteration, gate.type)
        asks = gate.needs not in (None, "audits")
        candidates = [
            replace(row, evidence=evidence.get(row.question_id, ()))
            for row in in_band
            if not asks or row.question_id in evidence
        ]
        admission = gate.admit(candidates, Known(voted, evidence, audits, states.get(gate.type)))
        admitted = [row.question_id for row, yes in zip(candidates, admission.admitted, strict=True) if yes]
        graded = [is_right[key] for key in admitted if key in is_right]
        shares = {"admitted": share(len(admitted), len(candidates)), "label_accuracy": share(sum(graded), len(graded))}
        figures[gate.type] = {name: of and of.as_json() for name, of in shares.items()}
    return figures
