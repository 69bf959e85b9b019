"""The registry of figures, and what is made from it."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from core.figures import ACCURACY, FIGURES, RULES, SIGNS, figure_of, figures_of_rule, is_share, unknown_series

_SCRIPT = Path(__file__).parents[2] / "docs" / "list_figures.py"
MADE: dict[Path, Callable[[str], str]] = runpy.run_path(str(_SCRIPT))["MADE"]


@pytest.mark.parametrize("file", MADE, ids=lambda file: file.name)
def test_what_is_made_from_the_registry_is_up_to_date(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert MADE[file](text) == text


def test_rules_watch_figures_that_have_an_interval_and_no_figure_twice() -> None:
    tested = [name for rule in RULES for name in figures_of_rule(rule)]
    assert len(tested) == len(set(tested))
    assert all(FIGURES[name].interval for name in tested)
    assert all(rule.warning < rule.critical for rule in RULES.values())
    assert set(SIGNS) <= FIGURES.keys()


def test_no_two_figures_have_the_same_metric_or_title() -> None:
    assert len({figure.exposed_as for figure in FIGURES.values()}) == len(FIGURES)
    assert len({figure.title for figure in FIGURES.values()}) == len(FIGURES)


def test_a_metric_s_name_follows_from_the_figure_s_or_is_in_the_docs() -> None:
    page = (_SCRIPT.parent / "alerts.md").read_text(encoding="utf-8")
    for name, figure in FIGURES.items():
        unit = figure.unit and f"_{figure.unit}"
        assert figure.exposed_as == f"coevo_{name.removesuffix('_share')}{unit}" or f"`{figure.exposed_as}`" in page
    shares = ("_share", "_accuracy", "p_hat", *ACCURACY)
    for unit, named in {"ratio": shares, "nats": ("entropy", "kl", "gap", "gap_max"), "tokens": ("_length",)}.items():
        assert {name for name in FIGURES if name.endswith(named)} == {
            name for name, figure in FIGURES.items() if figure.unit == unit
        }


def test_a_figure_of_another_version_is_known_as_far_as_its_name_tells() -> None:
    assert figure_of("solver_0_on_1") is None
    assert figure_of("Nasty{} share") is None
    late = figure_of("later_share")
    assert late is not None
    assert (late.exposed_as, late.shown_unit) == ("coevo_later_ratio", "")
    assert is_share("later_share")
    assert not is_share("later")
    assert unknown_series("later", ["a point"]) is None
    assert "label_accuracy" in str(unknown_series("label_acuracy", []))


def test_a_unit_is_shown_without_that_of_a_share() -> None:
    units = {
        "kl": "nats per token",
        "right_clusters": "per prompt",
        "vote_entropy": "nats",
        "p_hat": "",
        "kept_share": "",
    }
    assert {name: FIGURES[name].shown_unit for name in units} == units
