"""What the gates have in common: what they are handed, and what they answer.

A gate asks no model. What must be asked is asked by the stage `admit_questions`, which hands it in as evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from core.asking.service import Service
from core.statistics.calibration import Cell
from core.types import PseudoLabel
from core.validation.bounds import SettingsTable

# What a gate must be told besides the votes: what other Solvers vote, what the same Solver votes on another form of the
# question, what a judge says, or how often audited labels of earlier iterations were right. For the first three, a gate
# has the settings of `Solvers`, `Reordered` or `JudgeGate`.
Need = Literal["other_solvers", "other_form", "judge", "audits"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one model answered about a question, for a gate."""

    question_id: str
    gate: str  # the gate's type
    voter: str  # a checkpoint, or the name of an oracle
    question: str | None  # what was asked in place of the question; None: the question itself
    answers: tuple[str | None, ...]  # of m samples; of a judge, its verdict alone; empty: nothing could be asked


@dataclass(frozen=True, slots=True)
class Candidate:
    """A question that was voted on."""

    question_id: str
    question: str
    label: PseudoLabel
    seed: int = 0  # of what a gate draws, so that a resumed run draws the same
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What a gate may look at besides its candidates."""

    voted: Sequence[Candidate] = ()  # all questions of the iteration that were voted on, also those outside of the band
    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)  # by the candidate's question
    audits: Sequence[Cell] = ()  # of earlier iterations, by the run's oracle
    state: Any = None  # what the gate returned in the iteration before; None in the first


@dataclass(frozen=True, slots=True)
class Admission:
    """What a gate answers. `state` is small JSON, and is handed to the gate in the next iteration."""

    admitted: tuple[bool, ...]  # of each candidate
    metrics: Mapping[str, float] = field(default_factory=dict)  # of what the gate saw
    state: Any = None

    @classmethod
    def of(cls, admitted: Iterable[bool], state: Any = None, **metrics: float | None) -> Admission:
        """A metric that is None, because there is nothing to compute it from, is left out."""
        return cls(tuple(admitted), {name: value for name, value in metrics.items() if value is not None}, state)


class Gate(SettingsTable):
    """The base class of the gates. A gate defines `admits`, or `admit` if it looks at more than one candidate.

    Both must depend on nothing but their arguments, so that they can be computed again from what is stored.
    """

    needs: ClassVar[Need | None] = None

    type: str

    @property
    def services(self) -> list[Service]:
        """The services that are asked for the gate."""
        tables = [self, *(getattr(self, name) for name in type(self).model_fields)]
        return [table for table in tables if isinstance(table, Service)]

    def admits(self, candidate: Candidate) -> bool:
        """Whether the Solver may learn from the candidate."""
        raise NotImplementedError(f"{type(self).__qualname__}: expected a method admits or admit")

    def admit(self, candidates: Sequence[Candidate], known: Known) -> Admission:
        """From which of the candidates (N,) the Solver may learn."""
        return Admission.of(map(self.admits, candidates), known.state)


@dataclass(frozen=True, slots=True)
class Passed:
    """The result of all gates: question id -> the gate that refused it, and each gate's admission by its type."""

    refused: dict[str, str]
    admissions: dict[str, Admission]

    def as_json(self) -> dict[str, Any]:
        """Gate -> how many candidates it saw and refused, its metrics and its state."""
        return {
            name: {
                "candidates": len(admission.admitted),
                "refused": admission.admitted.count(False),
                "metrics": dict(admission.metrics),
                "state": admission.state,
            }
            for name, admission in self.admissions.items()
        }


def pass_gates(
    gates: Sequence[Gate], candidates: Sequence[Candidate], told: Callable[[Gate, Sequence[Candidate]], Known]
) -> Passed:
    """Have the gates admit the candidates, in their order: each sees only what those before it have admitted.

    `told` finds out what a gate needs to know of its candidates.
    """
    passed = Passed({}, {})
    for gate in gates:
        known = told(gate, candidates)
        candidates = [replace(row, evidence=known.evidence.get(row.question_id, ())) for row in candidates]
        admission = gate.admit(candidates, known)
        passed.admissions[gate.type] = admission
        by_gate = [*zip(candidates, admission.admitted, strict=True)]
        passed.refused.update((candidate.question_id, gate.type) for candidate, admitted in by_gate if not admitted)
        candidates = [candidate for candidate, admitted in by_gate if admitted]
    return passed
