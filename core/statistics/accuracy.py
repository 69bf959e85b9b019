"""Accuracy on a benchmark: of one checkpoint, by level, and of one checkpoint against another.

pass@1 is the mean, over the items of the benchmark, of the share of an item's samples that are right. Its n is the
number of items. Greedy and majority accuracy are shares of items. All have the interval of `mean_share`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.statistics.estimates import Estimate, mean_share, paired_share_difference, share
from core.types import Evaluated


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of one checkpoint of a run on a benchmark, or the difference between two checkpoints."""

    pass_at_1: Estimate
    greedy: Estimate
    majority: Estimate


def accuracy_of(items: Sequence[Evaluated]) -> Accuracy | None:
    """The accuracy over `items`; None if there are none, or none with a greedy answer."""
    return accuracy(pass_at_1_of(items), greedy_of(items), majority_of(items))


def accuracy(pass_at_1: Estimate | None, greedy: Estimate | None, majority: Estimate | None) -> Accuracy | None:
    return Accuracy(pass_at_1, greedy, majority) if pass_at_1 and greedy and majority else None


def pass_at_1_of(items: Sequence[Evaluated]) -> Estimate | None:
    return mean_share([_rate(item) for item in items])


def greedy_of(items: Sequence[Evaluated]) -> Estimate | None:
    """Of the items that were asked greedily; None if there are none."""
    asked = [item.greedy_correct for item in items if item.greedy_correct is not None]
    return share(sum(asked), len(asked))


def majority_of(items: Sequence[Evaluated]) -> Estimate | None:
    return share(sum(item.majority_correct for item in items), len(items))


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

    return accuracy(
        difference(_rate),
        difference(lambda item: bool(item.greedy_correct)),  # a run asks each question greedily
        difference(lambda item: item.majority_correct),
    )


def _rate(item: Evaluated) -> float:
    return item.correct / item.samples
