"""The label must be right with some chance, as audits of earlier iterations suggest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import ClassVar, Literal

from core.challenger.gates.base import Admission, Candidate, Gate, Known, Need
from core.statistics.calibration import Cell, chances
from core.validation.bounds import Share


class Accuracy(Gate):
    """Admits a question if the chance that its label is right is at least `least`.

    The chance is how often labels with the same p_hat were right in all earlier iterations that the run's oracle has
    audited (`core.statistics.calibration`). Without any audit, every question is admitted. An oracle that knows the
    truth so has a say in what is learned from, though not about the question itself.

    The state is the audits that were used, as [iteration, p_hat, n, right]. So those of a run from which this one goes
    on are used too, and those that are made later are not, when the admission is computed again.
    """

    needs: ClassVar[Need] = "audits"

    type: Literal["accuracy"] = "accuracy"
    least: Share = 0.8

    def admit(self, candidates: Sequence[Candidate], known: Known) -> Admission:
        own = {cell.iteration for cell in known.audits}
        audits = [*(Cell(*cell) for cell in known.state or () if cell[0] not in own), *known.audits]
        right = chances(audits, [candidate.label.p_hat for candidate in candidates])
        state = [list(astuple(cell)) for cell in audits]
        if right is None:
            return Admission.of((True for _ in candidates), state)
        mean = sum(right) / len(right) if right else None
        return Admission.of((chance >= self.least for chance in right), state, estimated=mean)
