"""The operations that a job's workers do together, in two real processes."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from two_ranks import Pair

from trainers.local import ranks as ranks_module
from trainers.local.ranks import Ranks, _buckets


def sums(ranks: Ranks, bucket: int) -> tuple[list[list[float]], int]:
    """The sums over the ranks of tensors of several shapes, rank 1's ten times rank 0's; and the number of
    exchanges."""
    scale = 10.0**ranks.rank
    tensors = [torch.full((2, 3), scale), torch.full((4,), 2 * scale), torch.tensor(3 * scale), torch.full((5,), scale)]
    with (
        patch.object(ranks_module, "_BUCKET", bucket),
        patch.object(ranks_module.dist, "all_reduce", side_effect=ranks_module.dist.all_reduce) as exchange,
    ):
        ranks.add(*tensors)
    return [tensor.flatten().tolist() for tensor in tensors], exchange.call_count


@pytest.mark.parametrize(("bucket", "exchanges"), [(100, 1), (10, 2), (5, 3), (1, 4)])
def test_tensors_are_added_over_the_ranks_in_few_exchanges(pair: Pair, bucket: int, exchanges: int) -> None:
    expected = [[11.0] * 6, [22.0] * 4, [33.0], [11.0] * 5]
    assert pair(sums, bucket) == [(expected, exchanges)] * 2


def test_a_single_rank_leaves_tensors_unchanged() -> None:
    alone = torch.ones(3)
    Ranks().add(alone)
    assert alone.tolist() == [1, 1, 1]


def test_a_bucket_has_the_next_tensors_that_fit_or_a_single_larger_one() -> None:
    sizes = [3, 5, 9, 20, 2, 8, 1]
    with patch.object(ranks_module, "_BUCKET", 10):
        buckets = _buckets([torch.empty(size) for size in sizes])
    assert [[tensor.numel() for tensor in bucket] for bucket in buckets] == [[3, 5], [9], [20], [2, 8], [1]]


def shared(ranks: Ranks) -> tuple[list[int], list[int], str]:
    """The items that this rank worked on, everybody's results, and rank 0's text."""
    own: list[int] = []

    def squares(items: list[int]) -> list[int]:
        own.extend(items)
        return [item**2 for item in items]

    return own, ranks.map([1, 2, 3, 4, 5], squares), ranks.agree(f"rank {ranks.rank}")


def test_work_is_divided_and_every_rank_gets_all_results_in_order(pair: Pair) -> None:
    assert pair(shared) == [([1, 3, 5], [1, 4, 9, 16, 25], "rank 0"), ([2, 4], [1, 4, 9, 16, 25], "rank 0")]
