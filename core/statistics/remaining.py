"""How long a run will still take, as a range, from how long its stages and those of similar runs took.

The duration of a stage is predicted by what is known of it: by the same stage in the run's earlier iterations, and by
the same stage of the same iteration in similar runs. The latter is scaled by how much faster or slower this run was in
the stages that both have finished. The range reaches from the shortest to the longest of these durations, and further
if there are few of them (`_margin`). Without similar runs, a later iteration may take longer than all before it, as
answers become longer in training; so the upper end grows with each iteration that lies between (`_GROWTH`). Neither
number was fitted to runs; docs/dashboard.md says how often the range was right.

Ends are added for a sum of stages, as if all of them were fast or all were slow. So the range of a run is wide rather
than wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.types import Stage

Key = tuple[int, Stage]  # iteration and stage
Durations = Mapping[Key, float]  # seconds of the stages that are done

_GROWTH = 1.3  # of the upper end, by iteration, if no similar run shows how durations change


@dataclass(frozen=True, slots=True)
class Remaining:
    """The time until something ends, in seconds: probably at least `low` and at most `high`."""

    low: float
    high: float

    def __add__(self, other: Remaining) -> Remaining:
        return Remaining(self.low + other.low, self.high + other.high)

    def after(self, elapsed: float) -> Remaining:
        """What remains of a stage after `elapsed` seconds. If it has taken longer than expected, nothing is known but
        that it has taken so long, so it may take as long again."""
        if elapsed >= self.high:
            return Remaining(0.0, elapsed)
        return Remaining(max(self.low - elapsed, 0.0), self.high - elapsed)


def duration_of(key: Key, own: Durations, similar: Sequence[Durations]) -> Remaining | None:
    """The duration of a stage that has not begun; None if nothing is known about it.

    `own` are the stages of this run that are done, `similar` those of other runs.
    """
    iteration, stage = key
    scaled = [run[key] * _ratio(stage, own, run) for run in similar if key in run]
    earlier = sorted(t for t, name in own if name == stage and t < iteration)
    # The stages before the first iteration ask another model, so they count only if nothing else is known.
    known = [own[t, stage] for t in [t for t in earlier if t] or earlier]
    samples = [*scaled, *known[-1:]] if scaled else known
    if not samples:
        return None
    margin = _margin(len(samples))
    growth = 1.0 if scaled else _GROWTH ** (iteration - max(earlier))
    return Remaining(min(samples) / margin, max(samples) * margin * growth)


def remaining_of(
    to_come: Sequence[Key], elapsed: float, own: Durations, similar: Sequence[Durations]
) -> Remaining | None:
    """The time until the last of the stages `to_come` has ended; None if nothing is known about one of them.

    `elapsed` is for how long the first of them has been running: 0 if it has not begun.
    """
    total = Remaining(0.0, 0.0)
    for position, key in enumerate(to_come):
        duration = duration_of(key, own, similar)
        if duration is None:
            return None
        total += duration if position else duration.after(elapsed)
    return total


def first_unknown(to_come: Sequence[Key], own: Durations, similar: Sequence[Durations]) -> Key | None:
    """The first of the stages `to_come` that nothing is known about; None if something is known about all."""
    return next((key for key in to_come if duration_of(key, own, similar) is None), None)


def _ratio(stage: Stage, own: Durations, run: Durations) -> float:
    """How many times as long as in `run` this run's stages took: the same stages if both have some, else all."""
    shared = own.keys() & run.keys()
    same_stage = {key for key in shared if key[1] == stage}
    compared = same_stage or shared
    before = sum(run[key] for key in compared)
    return sum(own[key] for key in compared) / before if before else 1.0


def _margin(n: int) -> float:
    """By how much the range goes beyond the shortest and the longest of n durations."""
    return 1.0 + 1.0 / (1.0 + n)
