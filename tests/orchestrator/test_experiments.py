"""Experiments: their files, the runs that they plan, and which of them are run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.settings.config import RunConfig
from core.settings.parsing import ConfigError
from orchestrator.check.presets import preset_names
from orchestrator.experiments import (
    ExperimentError,
    PlannedRun,
    is_experiment,
    planned,
    read_experiment,
    run_all,
)
from orchestrator.installation.home import EXPERIMENTS, Home
from orchestrator.runs import set_status
from storage import queries
from storage.session import Store
from tests.commands import coevo

FILE = """
title = "What the filter is worth"
preset = "demo"
baseline = "full"
[settings]
iterations = 1
[arms.no_filter]
settings = {"dataset.filtered" = false}
[arms.full]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def test_the_baseline_comes_first_and_arms_share_their_seeds(file: Path) -> None:
    runs = planned(*read_experiment(str(file)), seeds=2, overrides={"dataset.votes": 5})
    assert [(run.row.run, run.row.position, run.row.seed) for run in runs] == [
        ("mine-full-1", 0, 20260),
        ("mine-no_filter-1", 1, 20260),
        ("mine-full-2", 0, 20261),
        ("mine-no_filter-2", 1, 20261),
    ]
    assert {(run.config.iterations, run.config.dataset.votes) for run in runs} == {(1, 5)}
    assert [run.config.seed for run in runs] == [20260, 20260, 20261, 20261]
    assert runs[0].config.model_dump()["dataset"]["filtered"]
    assert not runs[1].config.model_dump()["dataset"]["filtered"]


def test_runs_that_have_ended_are_not_run_again(file: Path, tmp_path: Path, store: Store) -> None:
    runs = planned(*read_experiment(str(file)), seeds=1, overrides={})
    started: list[str] = []

    def start(run: PlannedRun, _checked: RunConfig) -> None:
        started.append(run.row.run)
        if len(started) == 2:
            raise KeyboardInterrupt
        set_status(store, run.row.run, "done")

    with pytest.raises(KeyboardInterrupt):
        [*run_all(Home(tmp_path), store, runs, start)]
    full, no_filter = "mine-full-1", "mine-no_filter-1"
    ended = [(run.row.run, had_ended) for run, had_ended in run_all(Home(tmp_path), store, runs, start)]
    assert ended == [(full, True), (no_filter, False)]
    assert started == [full, no_filter, no_filter]
    with store.read() as session:
        assert queries.experiments.arms_of(session, "mine") == {"full": [full], "no_filter": [no_filter]}
        assert queries.experiments.list_experiments(session) == ["mine"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('baseline = "full"', 'baseline = "half"', "baseline: expected one of no_filter, full, got 'half'"),
        ("[arms.full]", "[arms.full]\ncolour = 1", "colour"),
        ("title", "titel", "titel"),
        ("[settings]", "[settings", "not valid TOML"),
        ("dataset.filtered", "dataset.filtred", "filtred"),  # before anything runs
    ],
)
def test_a_bad_file_is_refused(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(FILE.replace(old, new))
    with pytest.raises((ExperimentError, ConfigError), match=message):
        planned(*read_experiment(str(file)), seeds=1, overrides={})
    with pytest.raises(ExperimentError, match="nosuch"):
        read_experiment("nosuch")


def test_a_name_is_that_of_a_preset_or_of_an_experiment(file: Path, tmp_path: Path) -> None:
    shipped = {path.stem for path in EXPERIMENTS.glob("*.toml")}
    assert shipped.isdisjoint(preset_names())
    (tmp_path / "preset.toml").write_text("iterations = 1")
    (tmp_path / "broken.toml").write_text("[arms")
    assert [is_experiment(name) for name in ("ablation", "demo", "nosuch")] == [True, False, False]
    names = (file, *(tmp_path / f"{name}.toml" for name in ("preset", "broken", "nosuch")))
    assert [is_experiment(str(name)) for name in names] == [True, False, False, False]


@pytest.mark.parametrize("name", sorted(path.stem for path in EXPERIMENTS.glob("*.toml")))
def test_every_shipped_experiment_can_be_planned(name: str) -> None:
    listed = [json.loads(line) for line in coevo("run", name, "--seeds", "2", "--plan", "--json").stdout.splitlines()]
    short_name, contents = read_experiment(name)
    runs = planned(short_name, contents, contents.seeds, {})
    assert len({run.row.run for run in runs}) == len(contents.arms) * contents.seeds
    assert [row["run"] for row in listed] == [run.row.run for run in planned(short_name, contents, 2, {})]
    configs = [run.config.model_copy(update={"seed": 0}) for run in runs[: len(contents.arms)]]
    assert all(configs.count(config) == 1 for config in configs)  # no two arms are the same
