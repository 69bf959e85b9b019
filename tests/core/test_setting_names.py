"""Mistyped settings: which one was probably meant, who gave it, and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from core.settings.complaints import setting_names
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import ConfigError, load_config, parse_method
from core.validation.faults import Fault, listed
from core.validation.suggestions import no_such

RUNS = Path(__file__).parents[2] / "deploy" / "runs"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("dataset.candidats", "dataset.candidates"),
        ("candidates", "dataset.candidates"),  # the table is missing
        ("datset.candidates", "dataset.candidates"),
        ("budget.huors", "budget.hours"),
        ("solver.steps", "solver.training.steps"),
        ("zzzz", None),
    ],
)
def test_the_setting_that_was_probably_meant_is_found(typed: str, meant: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(RUNS / "demo.toml", {typed: 3})
    [fault] = refused.value.faults
    assert fault.remedy == (meant and f"did you mean {meant}?")


def test_the_names_are_those_of_every_setting_of_a_stored_run() -> None:
    for kind, preset in ((CoEvolution, "demo"), (SelfTraining, "micro")):
        names = setting_names(kind)
        assert {*_dotted(load_config(RUNS / f"{preset}.toml").model_dump())} <= {*names}
        assert "solver.reward.alpha" in names  # of EVOL-RL, which neither of these presets runs


def _dotted(tree: dict[str, Any], above: str = "") -> list[str]:
    names = []
    for name, value in tree.items():
        names += [f"{above}{name}", *(_dotted(value, f"{above}{name}.") if isinstance(value, dict) else [])]
    return names


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ({"dataset.candidats": 320}, "dataset.candidats"),
        ({"candidates": 3}, "candidates"),
        ({"datset.candidates": 3}, "datset.candidates"),
        ({"audit.oracle": "jugde"}, "audit.oracle"),
        ({"dataset.candidates": "abc"}, "dataset.candidates"),
        ({"shared": "maybe"}, "shared"),
        ({"challenger.reward.format": "tag"}, "challenger.reward.format"),
        ({"solver.reward.alpha": 0.2}, "solver.reward.alpha"),
        ({"dataset.band": [0.8, 0.3]}, "dataset.band"),
        ({"dataset": {"votes": 0}}, "dataset.votes"),
        ({"solver.training.prompts_per_update": 64}, "solver.training.prompts_per_update"),
    ],
)
def test_a_wrong_override_is_blamed_and_not_the_preset(overrides: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(RUNS / "demo.toml", overrides, "--set")
    [fault] = refused.value.faults
    assert fault.setting == setting
    assert (fault.source or "").startswith("--set ")
    assert "demo.toml" not in str(refused.value)


def test_faults_of_the_file_and_of_overrides_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[dataset]\nvotez = 3\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file, {"seed": -1})
    assert str(refused.value).splitlines() == [
        f"{file}: not a valid run configuration",
        "  dataset.votez: unknown setting; did you mean dataset.votes?",
        "overrides seed=-1: expected at least 0, got -1",
    ]
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
    with pytest.raises(ConfigError):
        parse_method("evolrl")


def test_every_kind_of_run_has_names() -> None:
    assert all(setting_names(kind) for kind in get_args(RunConfig))
