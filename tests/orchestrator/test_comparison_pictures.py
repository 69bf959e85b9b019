"""Pictures of several runs or models: hostile names, and figures that are all 0."""

from __future__ import annotations

import warnings

from core.statistics.estimates import Estimate
from orchestrator.report.comparison import Panel, picture_of

ZERO = Estimate(0.0, 0.0, 0.0, 1)


def test_a_name_with_dollar_signs_is_no_formula() -> None:
    picture = picture_of([Panel("$\\frac$", {"/models/$_$": {0: ZERO, 1: ZERO}}, "iteration")])
    assert picture.startswith(b"\x89PNG")


def test_figures_that_are_all_0_have_an_axis() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture_of([Panel("accuracy", {"run": {0: ZERO, 1: ZERO}}, "step")])
