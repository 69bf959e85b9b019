"""Pictures of several runs or models: hostile names, and figures that are all 0."""

from __future__ import annotations

import math
import warnings
from io import BytesIO

import pytest
from matplotlib.axes import Axes
from PIL import Image

from core.statistics.estimates import Estimate
from orchestrator.pictures import comparison
from orchestrator.pictures.comparison import Panel, picture_of

ZERO = Estimate(0.0, 0.0, 0.0, 1)


def test_a_picture_has_a_white_ground_an_axis_for_figures_that_are_all_0_and_no_formula_for_a_name() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = picture_of([Panel("$\\frac$", {"/models/$_$": {0: ZERO, 1: ZERO}}, "step")])
    with Image.open(BytesIO(drawn)) as picture:
        assert picture.format == "PNG"
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("values", [[], [math.nan], [math.nan, 0.5], [0.5, math.inf, -math.inf], [0.5]])
@pytest.mark.parametrize("x", ["iteration", "step", "k"])
@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_what_is_not_finite_is_not_drawn(values: list[float], x: comparison.X, suffix: str) -> None:
    line = {t: Estimate(value, value, value, 1) for t, value in enumerate(values, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert picture_of([Panel("a figure", {"run": line}, x, runs={"run": [line, line]})], suffix)


@pytest.mark.parametrize(
    ("estimates", "share", "expected"),
    [
        ([(0.30, 0.28, 0.32), (0.40, 0.37, 0.43)], True, (0.27, 0.44)),  # fits, and not from 0 to 100%
        ([(0.30, 0.00, 1.00), (0.40, 0.01, 1.00)], True, (0.24, 0.46)),  # two seeds: the intervals run out of the chart
        ([(1.00, 1.00, 1.00), (0.90, 0.90, 0.90)], True, (0.89, 1.00)),  # no more than 100%, with the whole marker
        ([(-3.0, -4.0, -2.0), (-1.0, -1.5, -0.5)], False, (-4.3, -0.2)),
    ],
)
def test_the_axis_fits_the_values(
    estimates: list[tuple[float, float, float]],
    share: bool,
    expected: tuple[float, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charts: list[Axes] = []
    monkeypatch.setattr(comparison, "_fit_axis", lambda chart, panel: (fit(chart, panel), charts.append(chart)))
    line = {t: Estimate(value, lo, hi, 9) for t, (value, lo, hi) in enumerate(estimates)}
    picture_of([Panel("a figure", {"run": line}, "iteration", share)])
    assert charts[0].get_ylim() == pytest.approx(expected, abs=0.08 * (expected[1] - expected[0]))


fit = comparison._fit_axis
