"""Has the run's gates (`core.challenger.gates`) decide from which of the kept questions the Solver learns.

What a gate must be told is asked here, and stored in batches. The verdicts follow from that and from the votes alone.
They are stored at the end, together with each gate's state, which it is handed in the next iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from core.challenger.gates import Candidate, Gate, Known, pass_gates
from core.questions.filtering import statistics
from core.seeds import seed_for
from core.settings.config import CoEvolution
from core.statistics.calibration import Cell
from core.types import LabelledQuestion, question_key
from orchestrator.ledger import LastWrite
from orchestrator.stages.chain import Chain
from orchestrator.stages.context import Context, key_of
from orchestrator.stages.evidence import gather_evidence
from storage import queries


def admit_questions(context: Context[CoEvolution]) -> LastWrite:
    run, t, config = context.run.name, context.iteration, context.config
    with context.store.read() as session:
        labelled = queries.questions.labels_of(session, run, t)
        states = states_before(session, context.chain(session))
        audits = audits_before(session, run, t, config)
    voted, in_band = candidates_of(labelled, config, t)

    def told(gate: Gate, candidates: Sequence[Candidate]) -> Known:
        return Known(voted, gather_evidence(context, gate, candidates), audits, states.get(gate.type))

    passed = pass_gates(config.gates, in_band, told)

    def last_write(session: Session) -> dict[str, Any]:
        queries.questions.refuse_labels(session, passed.refused)
        stats = statistics(queries.questions.labels_of(session, run, t))
        queries.figures.add_filter_stats(session, run=run, iteration=t, stats=stats)
        return {"candidates": len(in_band), "kept": len(in_band) - len(passed.refused), "gates": passed.as_json()}

    return last_write


def candidates_of(
    labelled: Sequence[LabelledQuestion], config: CoEvolution, iteration: int
) -> tuple[list[Candidate], list[Candidate]]:
    """The questions of an iteration that were voted on, and those of them that the band kept."""
    voted, in_band = list[Candidate](), list[Candidate]()
    for row in labelled:
        if row.text is not None and row.label is not None:
            seed = seed_for(config.seed, key_of(iteration), "admit", question_key(row.question_id)[2])
            voted.append(Candidate(row.question_id, row.text, row.label, seed))
            if row.verdict in ("kept", "refused"):
                in_band.append(voted[-1])
    return voted, in_band


def audits_before(session: Session, run: str, iteration: int, config: CoEvolution) -> list[Cell]:
    """What the run's oracle says of the labels of earlier iterations."""
    cells = queries.audits.audited_cells(session, run, config.audit.label) if config.audit.label else []
    return [cell for cell in cells if cell.iteration < iteration]


def states_before(session: Session, chain: Chain) -> dict[str, Any]:
    """Gate -> its state when the chain's iteration begins. It goes on with the Solver, also after a roll back."""
    solver = chain.checkpoint("solver", chain.iteration - 1)
    of = queries.ledger.find_stage(session, run=solver.run, iteration=solver.iteration, stage="admit_questions")
    result = (of.result if of is not None else None) or {}
    return {name: gate["state"] for name, gate in result.get("gates", {}).items()}
