"""RENT by hand: R(y) = -H, the mean over all tokens of a response."""

from __future__ import annotations

import pytest
from reward_groups import group_of

from core.methods.rent import Rent


def test_the_rollout_with_the_lowest_entropy_earns_most_whatever_it_answers() -> None:
    scored = Rent().score(group_of(["7", "8", None], mean_entropy=[0.5, 0.1, 0.3]))
    assert scored.rewards.tolist() == [-0.5, -0.1, -0.3]
    assert (scored.label, scored.learn) == (None, True)
    # mean -0.3, unbiased deviation 0.2
    assert Rent().advantages(scored.rewards) == pytest.approx([-1, 1, 0], abs=1e-4)


def test_rent_refuses_a_group_without_entropies() -> None:
    assert Rent().needs == {"mean_entropy"}
    with pytest.raises(ValueError, match="mean_entropy: rent needs one per rollout: expected 2, got "):
        Rent().score(group_of(["7", "8"]))
