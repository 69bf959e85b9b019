"""Accuracy on a benchmark: of one checkpoint, by level, and of one checkpoint against another.

pass@1 is the mean, over the items of the benchmark, of the share of an item's samples that are right. Its n is the
number of items. Greedy and majority accuracy are shares of items. All have the interval of `mean_share`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.statistics.estimates import Estimate, Sums, mean_share, paired_share_difference, share
from core.types import Evaluated


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of one checkpoint on a benchmark, or the difference between two checkpoints."""

    pass_at_1: Estimate
    greedy: Estimate
    majority: Estimate


def accuracy_of(items: Sequence[Evaluated]) -> Accuracy | None:
    """The accuracy over `items`; None if there are none."""
    greedy, majority = sum(item.greedy_correct for item in items), sum(item.majority_correct for item in items)
    return accuracy_of_sums([_rate(item) for item in items], greedy, majority)


def accuracy_of_sums(rates: Sequence[float] | Sums, greedy: int, majority: int) -> Accuracy | None:
    """The accuracy from the items' shares of right samples, or their sums, and the numbers of right items."""
    n = rates.n if isinstance(rates, Sums) else len(rates)
    return _accuracy(mean_share(rates), share(greedy, n), share(majority, n))


def pass_at_1_by_level(items: Sequence[Evaluated]) -> dict[str, Estimate]:
    """Level -> pass@1. Numbered levels come first, in order of their numbers; items without a level are left out."""
    rates: dict[str, list[float]] = {}
    for item in items:
        if item.level is not None:
            rates.setdefault(item.level, []).append(_rate(item))
    order = sorted(rates, key=lambda level: (0, int(level), "") if level.isdecimal() else (1, 0, level))
    return {level: estimate for level in order if (estimate := mean_share(rates[level]))}


def gain(before: Sequence[Evaluated], after: Sequence[Evaluated]) -> Accuracy | None:
    """The paired difference, after minus before, over the items that both have. None if they share none."""
    old, new = ({item.item_id: item for item in items} for items in (before, after))
    pairs = [(old[item_id], new[item_id]) for item_id in sorted(old.keys() & new.keys())]

    def difference(score: Callable[[Evaluated], float]) -> Estimate | None:
        return paired_share_difference([score(item) for item, _ in pairs], [score(item) for _, item in pairs])

    return _accuracy(
        difference(_rate),
        difference(lambda item: item.greedy_correct),
        difference(lambda item: item.majority_correct),
    )


def _accuracy(pass_at_1: Estimate | None, greedy: Estimate | None, majority: Estimate | None) -> Accuracy | None:
    return Accuracy(pass_at_1, greedy, majority) if pass_at_1 and greedy and majority else None


def _rate(item: Evaluated) -> float:
    return item.correct / item.samples
