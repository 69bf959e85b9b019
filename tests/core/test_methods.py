"""The methods that a preset's `[solver.reward] type` can name: those in the papers' modules."""

from __future__ import annotations

from types import ModuleType

import pytest

from core.methods import METHODS, Method, methods_of
from core.methods.rent import Rent


def paper(**names: type) -> ModuleType:
    module = ModuleType("paper")
    vars(module).update(names)
    return module


def test_a_module_s_methods_are_its_classes_that_have_a_type() -> None:
    assert methods_of([paper(Rent=Rent, base=Method, other=dict)]) == {"rent": Rent}
    assert {name: method.model_fields["type"].default for name, method in METHODS.items()} == {n: n for n in METHODS}


def test_a_method_that_two_modules_import_counts_once() -> None:
    assert methods_of([paper(Rent=Rent), paper(Rent=Rent)]) == {"rent": Rent}


def test_two_methods_with_the_same_type_are_refused() -> None:
    class Other(Rent):
        pass

    with pytest.raises(TypeError, match=r"Rent and .*Other are both 'rent'"):
        methods_of([paper(Rent=Rent), paper(Other=Other)])
