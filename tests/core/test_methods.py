"""What all methods have in common that a preset's `[solver.reward] type` can name."""

from __future__ import annotations

from random import Random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_groups import GIVEN, VOTED, any_groups, group_of, permuted

from core.methods import METHODS, Method
from core.methods.empo import Empo
from core.methods.evol_rl import EvolRl
from core.methods.poly_epo import GrpoDiv, PolyEpo
from core.methods.rent import Rent
from core.methods.scrl import Scrl
from core.methods.srt import SoftSrt
from core.types import Group
from core.validation.kinds import kinds_of

RANGES = [
    *((method, 0, 1) for method in (*VOTED, *GIVEN, PolyEpo(), SoftSrt(), Empo())),
    (GrpoDiv(), 0, 1.5),
    (Rent(), -2, 0),  # the groups' entropies are at most two nats
    (Scrl(), -0.125 - 0.2, 1.2),
    (Scrl(variant="official"), -1, 1.2),
    (EvolRl(), -1, 1),
    (EvolRl(variant="official"), -1, 1),
]


def paper(**names: type) -> ModuleType:
    module = ModuleType("paper")
    vars(module).update(names)
    return module


def test_a_module_s_methods_are_its_classes_that_have_a_type_each_once() -> None:
    assert kinds_of([paper(Rent=Rent, base=Method, other=dict), paper(Rent=Rent)], Method) == {"rent": Rent}
    assert {name: method.model_fields["type"].default for name, method in METHODS.items()} == {n: n for n in METHODS}
    assert {method.type for method, *_ in RANGES} == {*METHODS}


def test_two_methods_with_the_same_type_are_refused() -> None:
    class Other(Rent):
        pass

    with pytest.raises(TypeError, match=r"Rent and .*Other are both 'rent'"):
        kinds_of([paper(Rent=Rent), paper(Other=Other)], Method)


@pytest.mark.parametrize(("method", "low", "high"), RANGES, ids=lambda value: getattr(value, "type", ""))
@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_rewards_are_in_their_range_and_follow_a_permutation(
    method: Method, low: float, high: float, group: Group, random: Random
) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored, again = method.score(group), method.score(permuted(group, order))
    assert ((scored.rewards >= low) & (scored.rewards <= high)).all()
    assert again.rewards == pytest.approx(scored.rewards[order], abs=1e-6)
    assert (again.label, again.learn) == (scored.label, scored.learn)


@pytest.mark.parametrize(
    ("method", "signal"),
    [
        *((method, "label") for method in GIVEN),
        *((Scrl(), "mean_entropy"), (Rent(), "mean_entropy"), (EvolRl(), "embeddings")),
    ],
    ids=str,
)
def test_a_missing_signal_is_named_in_the_error(method: Method, signal: str) -> None:
    assert method.needs == {signal}
    with pytest.raises(ValueError, match=f"^{signal}: "):
        method.score(group_of(["7", "8"]))


@pytest.mark.parametrize("method", [PolyEpo(), GrpoDiv()], ids=lambda method: method.type)
def test_a_group_whose_strategies_are_unknown_is_dropped(method: Method) -> None:
    assert method.needs == {"clusters", "label"}
    assert not method.score(group_of(["7", "8"], label="7")).learn
