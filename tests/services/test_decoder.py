from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from services.inference.engines.decoder import _MIN_ROWS


@pytest.mark.parametrize(("inner", "outer"), [(96, 96), (96, 32), (96, 288), (288, 96), (96, 512), (896, 4864)])
def test_a_row_s_product_has_the_same_bits_in_a_batch_of_any_size(inner: int, outer: int) -> None:
    """The sizes are those of the micro model's layers and of one layer of a real model. On Intel's processors this
    holds in MKL's strict mode only."""
    drawn = torch.Generator().manual_seed(0)
    rows, weights = torch.randn(512, inner, generator=drawn), torch.randn(outer, inner, generator=drawn)
    whole = functional.linear(rows, weights)
    sizes = [*range(_MIN_ROWS, 132), 256, 300, 511]
    assert [n for n in sizes if not torch.equal(functional.linear(rows[:n].clone(), weights), whole[:n])] == []
