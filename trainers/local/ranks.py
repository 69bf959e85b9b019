"""What a data-parallel worker of a job knows about the others, and how the workers exchange results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")

_BUCKET = 8 << 20  # numbers per exchange: 32 MB in float32, which are held as a copy besides the tensors themselves


@dataclass(frozen=True, slots=True)
class Ranks:
    """Worker number `rank` of `size`. More than one worker needs torch's process group to be set up.

    Every rank must call `map`, `agree` and `add` in the same order, and every rank gets the same result from them.
    """

    rank: int = 0
    size: int = 1

    def own(self, items: Sequence[T]) -> list[T]:
        """This rank's share: every `size`-th item."""
        return list(items[self.rank :: self.size])

    def map(self, items: Sequence[T], work: Callable[[list[T]], Sequence[R]]) -> list[R]:
        """One result for each of `items`, in order. Each rank does `work` on its own share only."""
        results = list(work(self.own(items)))
        if self.size == 1:
            return results
        shares: list[Any] = [None] * self.size
        dist.all_gather_object(shares, results)
        return [shares[i % self.size][i // self.size] for i in range(len(items))]

    def agree(self, value: T) -> T:
        """The value that rank 0 passed; those of the other ranks are ignored."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def add(self, *tensors: Tensor) -> None:
        """Replace each of `tensors`, which must have the same dtype, by its sum over the ranks."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            # One exchange takes about as long for a whole bucket as for a small tensor.
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(flat)
            for tensor, total in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """`tensors` in order, grouped so that a list has at most `_BUCKET` numbers, or is a single larger tensor."""
    buckets: list[list[Tensor]] = []
    numbers = 0
    for tensor in tensors:
        numbers += tensor.numel()
        if not buckets or numbers > _BUCKET:
            buckets.append([])
            numbers = tensor.numel()
        buckets[-1].append(tensor)
    return buckets
