"""Faults of settings: their names, who gave them, and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from core.settings.complaints import setting_names
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import ConfigError, load_config
from core.validation.faults import Fault, listed
from core.validation.suggestions import no_such

RUNS = Path(__file__).parents[2] / "deploy" / "runs"


def test_the_names_are_those_of_every_setting_of_a_stored_run() -> None:
    assert {CoEvolution, SelfTraining} == {*get_args(RunConfig)}
    for kind, preset in ((CoEvolution, "demo"), (SelfTraining, "micro")):
        names = setting_names(kind)
        assert {*_dotted(load_config(RUNS / f"{preset}.toml").model_dump())} <= {*names}
        assert "solver.reward.alpha" in names  # of EVOL-RL, which neither of these presets runs


def _dotted(tree: dict[str, Any], above: str = "") -> list[str]:
    names = []
    for name, value in tree.items():
        names += [f"{above}{name}", *(_dotted(value, f"{above}{name}.") if isinstance(value, dict) else [])]
    return names


def test_faults_of_the_file_and_of_overrides_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[dataset]\nvotez = 3\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file, {"seed": -1})
    assert {fault.setting: fault.source for fault in refused.value.faults} == {
        "dataset.votez": None,
        "seed": "overrides seed=-1",
    }


def test_a_fault_is_called_by_the_setting_that_its_sentence_begins_with() -> None:
    text = "expected 1 or more, or 0 for what the preset says, got -1; leave it out"
    assert str(Fault.of("iterations", text)) == f"iterations: {text}"
    assert Fault.of("dataset", "band: expected x, got y").setting == "dataset.band"
    assert str(Fault("a", "y", "x", "leave it out")) == "a: expected x, got y; leave it out"
    assert listed([Fault("a", "b"), Fault("c", "d")]) == "2 faults:\n  a: b\n  c: d"


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones() -> None:
    assert no_such("suite", ["srt", "scrl"], "sRT") == "no such suite (did you mean srt?); expected one of srt, scrl"
    assert no_such("suite", [], "x") == "no such suite; expected one of none"
