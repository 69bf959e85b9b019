"""The data-parallel workers of one job, seen from one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")

_BUCKET = 8 << 20  # numbers that are exchanged at once: 32 MB in float32, copied besides the tensors themselves


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

    def add(self, *tensors: Tensor) -> None:
        """Replace each of `tensors`, all of one type, by its sum over the ranks."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            # one exchange takes as long for a bucket as for a small tensor
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(flat)
            for tensor, total in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """`tensors` in order, cut into lists of at most `_BUCKET` numbers, or of a single tensor with more."""
    buckets: list[list[Tensor]] = []
    numbers = 0
    for tensor in tensors:
        numbers += tensor.numel()
        if not buckets or numbers > _BUCKET:
            buckets.append([])
            numbers = tensor.numel()
        buckets[-1].append(tensor)
    return buckets
