"""Which iterations a run's present Solver comes from, and which of them is the best."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def standing_iterations(last: int, back_to: Mapping[int, int]) -> set[int]:
    """Those of the iterations 0 to `last` that led to the run's present Solver; 0 is the base model.

    `back_to`: iteration after which the run was rolled back -> iteration whose Solver it went back to.
    """
    parents, current = dict[int, int](), 0
    for t in range(last + 1):
        if t:
            parents[t], current = current, t
        current = back_to.get(t, current)
    standing = {current}
    while current:
        current = parents[current]
        standing.add(current)
    return standing


def best_iteration(accuracy: Mapping[int, float], standing: Collection[int]) -> int | None:
    """The trained iteration with the highest accuracy among those that stand, the earliest if several are equal.

    None if none of them was measured. It is picked in hindsight, so its accuracy flatters it.
    """
    return best_of({t: value for t, value in accuracy.items() if t and t in standing})


def best_of(accuracy: Mapping[int, float]) -> int | None:
    """The iteration with the highest accuracy, the earliest if several are equal; None if there is none."""
    return max(accuracy, key=lambda t: (accuracy[t], -t), default=None)
