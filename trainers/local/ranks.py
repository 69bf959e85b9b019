"""The data-parallel workers of one job, seen from one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Ranks:
    """`rank` of `size` workers. More than one need torch's process group, which Ray Train sets up; one needs nothing.

    Every rank calls the same methods in the same order, and all get the same results.
    """

    rank: int = 0
    size: int = 1

    def own(self, items: Sequence[T]) -> list[T]:
        """This rank's share: every `size`-th item."""
        return list(items[self.rank :: self.size])

    def map(self, items: Sequence[T], work: Callable[[list[T]], Sequence[R]]) -> list[R]:
        """One result an item, in order, where each rank did `work` on its own share only."""
        results = list(work(self.own(items)))
        if self.size == 1:
            return results
        shares: list[Any] = [None] * self.size
        dist.all_gather_object(shares, results)
        return [shares[i % self.size][i // self.size] for i in range(len(items))]

    def agree(self, value: T) -> T:
        """What rank 0 says."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def add(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over the ranks."""
        if self.size > 1:
            dist.all_reduce(tensor)
