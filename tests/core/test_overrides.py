"""An override changes what it names and nothing else, whether it is a dotted name or a table."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from core.settings.parsing import load_config
from core.settings.provenance import flat
from core.settings.trees import by_dotted_names, with_overrides
from orchestrator.cli.terminal import overrides_of

RUNS = Path(__file__).parents[2] / "deploy" / "runs"
SERVICE = {"url": "http://a/v1", "model": "m"}


@pytest.mark.parametrize(
    ("table", "kind", "expected"),
    [
        (
            {"format": "tags", "variant": "official"},
            "rzero",
            {"format": "tags", "variant": "official", "type": "rzero"},
        ),
        ({"format": "tags", "variant": "official"}, "target", {"format": "tags", "type": "target"}),
        ({"type": "target", "votes": 4, "peak": 0.6}, "rzero", {"votes": 4, "type": "rzero"}),
        ({"type": "target", "peak": 0.6}, "target", {"type": "target", "peak": 0.6}),
    ],
)
def test_another_reward_of_the_challenger_keeps_what_all_of_them_have(
    table: dict[str, object], kind: str, expected: dict[str, object]
) -> None:
    changed = with_overrides({"challenger": {"reward": table}}, {"challenger.reward.type": kind})
    assert changed["challenger"]["reward"] == expected


@pytest.mark.parametrize(
    ("preset", "overrides", "changed"),
    [
        ("demo", {"dataset": {"candidates": 320}}, {"dataset.candidates": 320}),
        ("demo", {"dataset": {}}, {}),
        ("demo", {"solver": {"training": {"sampling": {}}}}, {}),
        (
            "demo",
            {"dataset": {"sampling": {"max_tokens": 64}}, "dataset.votes": 6},
            {"dataset.sampling.max_tokens": 64, "dataset.votes": 6},
        ),
        ("demo", {"dataset.sampling": {"max_tokens": 64}}, {"dataset.sampling.max_tokens": 64}),
        ("demo", {"dataset": {"sampling.max_tokens": 64}}, {"dataset.sampling.max_tokens": 64}),
        ("demo", {"dataset.votes": 6, "dataset": {"candidates": 320}}, {"dataset.votes": 6, "dataset.candidates": 320}),
        ("demo", {"dataset": {"votes": 6}, "dataset.votes": 7}, {"dataset.votes": 7}),
        ("demo", {"dataset": {"band": None}}, {}),
        ("micro", {"prompts": {"limit": 32}}, {"prompts.limit": 32}),
    ],
)
def test_a_table_changes_only_the_settings_in_it(
    preset: str, overrides: dict[str, Any], changed: dict[str, Any]
) -> None:
    path, given = RUNS / f"{preset}.toml", deepcopy(overrides)
    before, after = (flat(load_config(path, these).model_dump(mode="json")) for these in ({}, overrides))
    assert {name: value for name, value in after.items() if before.get(name, "") != value} == changed
    assert overrides == given, "the caller's own mapping has changed"


@pytest.mark.parametrize(
    "overrides",
    [
        {"solver": {"reward": {"type": "evol_rl", "alpha": 0.25}}},
        {"solver.reward": {"alpha": 0.25, "type": "evol_rl"}},
        {"solver.reward.alpha": 0.25, "solver": {"reward": {"type": "evol_rl"}}},
    ],
)
def test_a_table_with_another_type_has_that_variant_s_defaults(overrides: dict[str, Any]) -> None:
    dotted = {"solver.reward.type": "evol_rl", "solver.reward.alpha": 0.25}
    assert load_config(RUNS / "demo.toml", overrides) == load_config(RUNS / "demo.toml", dotted)


def test_a_table_stands_in_the_place_of_a_word() -> None:
    tree = {"solver": {"signals": {"embedder": "hashing", "clusterer": "answer"}}}
    assert with_overrides(tree, {"solver": {"signals": {"embedder": SERVICE}}}) == {
        "solver": {"signals": {"embedder": SERVICE, "clusterer": "answer"}}
    }


def test_lists_of_an_override_are_not_shared_with_the_settings() -> None:
    band = [0.3, 0.8]
    with_overrides({}, {"dataset": {"band": band}})["dataset"]["band"].append(1)
    assert band == [0.3, 0.8]


def test_several_tables_of_the_command_line_become_one() -> None:
    texts = ['dataset={"candidates": 320}', 'dataset={"sampling": {"max_tokens": 64}}', "dataset.votes=6"]
    expected = {"dataset.candidates": 320, "dataset.sampling.max_tokens": 64, "dataset.votes": 6}
    assert overrides_of(texts) == by_dotted_names(overrides_of(texts)) == expected


@pytest.mark.parametrize("preset", ["demo", "rzero", "srt", "micro"])
def test_a_setting_that_is_overridden_with_its_own_value_changes_nothing(preset: str) -> None:
    """Also where the preset leaves out the table, whose defaults may differ from those of the same table elsewhere."""
    path = RUNS / f"{preset}.toml"
    config = load_config(path)
    for name, value in flat(config.model_dump(mode="json")).items():
        assert load_config(path, {name: value}) == config, name


@pytest.mark.parametrize("left_out", ["none", None])
def test_a_judge_may_be_asked_without_a_temperature(left_out: str | None) -> None:
    overrides = {"audit.oracle": "judge", "audit.judge": {**SERVICE, "temperature": left_out}}
    judge = load_config(RUNS / "demo.toml", overrides).audit.judge
    assert judge.temperature is None
