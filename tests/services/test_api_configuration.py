"""The configuration of a run and the comparison of settings and series, over REST."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from core.settings.parsing import load_config, read_preset
from storage import queries
from storage.rows import RunOrigin, SeriesPoint
from storage.session import Store
from tests.api_server import api_of, get, refused

RUNS = Path(__file__).parents[2] / "deploy" / "runs"


@pytest.fixture
def presets(tmp_path: Path) -> Path:
    """A folder with a copy of the preset evol_rl, which a test may edit."""
    folder = tmp_path / "presets"
    folder.mkdir()
    shutil.copy(RUNS / "evol_rl.toml", folder)
    return folder


@pytest.fixture
def api(sqlite: Store, presets: Path, tmp_path: Path) -> TestClient:
    return api_of(sqlite, tmp_path, presets=presets, papers=RUNS / "papers.tsv")


@pytest.fixture
def add_run(sqlite: Store, presets: Path) -> Callable[..., None]:
    """Stores a run of the preset, with overrides whose names have __ for a dot, and with its series."""

    def add(name: str, *series: SeriesPoint, **overrides: Any) -> None:
        path, dotted = presets / "evol_rl.toml", {key.replace("__", "."): value for key, value in overrides.items()}
        origin = RunOrigin(read_preset(path), dotted)
        with sqlite.write() as session:
            config = load_config(path, dotted)
            queries.runs.create_run(session, name=name, config=config, preset="evol_rl", origin=origin)
            queries.series.put_series(session, name, series)

    return add


def by_name(configuration: dict[str, Any]) -> dict[str, Any]:
    return {setting["name"]: setting for setting in configuration["settings"]}


def test_a_configuration_has_sources_defaults_and_the_paper_s_values(
    api: TestClient, add_run: Callable[..., None]
) -> None:
    add_run("first", solver__reward__alpha=0.75, seed=2**62)
    configuration = get(api, "/runs/first/configuration")
    assert (configuration["preset"], configuration["edited"]) == ("evol_rl", [])
    settings = by_name(configuration)
    alpha, clip, votes = (
        settings[name] for name in ("solver.reward.alpha", "solver.reward.clip_high", "dataset.votes")
    )
    assert (alpha["value"], alpha["source"], alpha["default"], alpha["differs"]) == (0.75, "override", 0.5, True)
    assert alpha["paper"] == {"value": "0.5", "reference": "Table 4", "same": False}
    assert (clip["source"], clip["paper"]["same"]) == ("default", True)
    assert (votes["source"], votes["differs"], votes["paper"]) == ("default", False, None)
    assert settings["solver.reward.advantage"]["paper"]["same"] is None  # "z-score" is no value
    assert settings["seed"]["value"] == str(2**62)  # readers of JSON would round it
    assert f"seed = {2**62}" in configuration["toml"]


def test_settings_that_the_preset_s_file_now_has_otherwise_are_named(
    api: TestClient, presets: Path, add_run: Callable[..., None]
) -> None:
    add_run("first")
    file = presets / "evol_rl.toml"
    before = by_name(get(api, "/runs/first/configuration"))
    file.write_text(file.read_text(encoding="utf-8").replace("prompts_per_step = 8", "prompts_per_step = 16"))
    configuration = get(api, "/runs/first/configuration")
    assert configuration["edited"] == ["solver.training.prompts_per_step"]
    assert by_name(configuration) == before  # what the run does, and where it came from, has not changed
    file.write_text("[")
    refused(api, "/runs/first/configuration", 409, "TOML")
    file.unlink()
    assert by_name(get(api, "/runs/first/configuration")) == before


def test_runs_that_differ_only_in_their_seed_are_a_group_that_is_called_after_its_settings(
    api: TestClient, add_run: Callable[..., None]
) -> None:
    for seed in (1, 2):
        add_run(f"evol-{seed}", seed=seed, iterations=seed)
    add_run("srt-1", seed=1, solver__reward__type="srt")
    comparison = get(api, "/comparison/settings", run=["evol-1", "srt-1", "evol-2"])
    groups = comparison["groups"]
    assert [group["runs"] for group in groups] == [["evol-1", "evol-2"], ["srt-1"]]
    types = [group["label"].partition(",")[0] for group in groups]
    assert types == [f"solver.reward.type = {type_}" for type_ in ("evol_rl", "srt")]
    settings = {setting["name"]: setting["values"] for setting in comparison["settings"]}
    assert settings["seed"] == {"evol-1": 1, "srt-1": 1, "evol-2": 2}
    assert settings["solver.reward.alpha"] == {"evol-1": 0.5, "evol-2": 0.5}  # SRT has no alpha
    assert "dataset.votes" not in settings
    [alone] = get(api, "/comparison/settings", run=["evol-1", "evol-2"])["groups"]
    assert alone["label"] == "evol-1"
    refused(api, "/comparison/settings", 404, "run nobody", run=["evol-1", "nobody"])


def test_groups_with_the_same_method_are_told_apart(api: TestClient, add_run: Callable[..., None]) -> None:
    add_run("a", solver__reward__alpha=0.25)
    add_run("b", solver__reward__alpha=0.75)
    add_run("c", solver__reward__type="srt")
    add_run("d", solver__reward__type="srt", evaluation__samples=3)
    labels = [group["label"] for group in get(api, "/comparison/settings", run=["a", "b", "c", "d"])["groups"]]
    assert len(set(labels)) == 4
    assert labels[1].startswith("solver.reward.type = evol_rl")
    assert "solver.reward.alpha = 0.75" in labels[1]
    assert labels[2].startswith("solver.reward.type = srt")
    grid = [f"{alpha}-{votes}-{seed}" for alpha in (1, 2, 3) for votes in (4, 5, 6) for seed in (1, 2)]
    for run in grid:
        alpha, votes, seed = map(int, run.split("-"))
        add_run(run, solver__reward__alpha=alpha / 4, dataset__votes=votes, seed=seed)
    groups = get(api, "/comparison/settings", run=grid)["groups"]
    assert [group["runs"] for group in groups] == [grid[i : i + 2] for i in range(0, 18, 2)]
    assert groups[0]["label"] == "dataset.votes = 4, solver.reward.alpha = 0.25"
    add_run("stops-early", early_stopping__benchmark="micro", early_stopping__patience=2)  # settings of its own
    add_run("as-the-preset")
    add_run("votes", dataset__votes=5)
    groups = get(api, "/comparison/settings", run=["stops-early", "as-the-preset", "votes"])["groups"]
    assert [group["runs"] for group in groups] == [["stops-early"], ["as-the-preset"], ["votes"]]
    assert len({group["label"] for group in groups}) == 3


def test_any_figure_of_any_runs_is_compared_by_iteration_or_step_and_over_seeds(
    api: TestClient, sqlite: Store, add_run: Callable[..., None]
) -> None:
    for seed, kl in ((1, 0.1), (2, 0.3)):
        add_run(f"evol-{seed}", SeriesPoint(1, "kl", "", "", kl, None, None, 2), seed=seed)
    with sqlite.write() as session:
        for step in (1, 2):
            metrics = {"kl": step / 10, "reward_max": 1.0}
            queries.figures.add_train_metrics(
                session, run="evol-2", iteration=1, role="solver", step=step, metrics=metrics
            )
    runs = ["evol-1", "evol-2"]
    kl, raw = get(api, "/comparison/figures", run=runs)
    assert (kl["name"], kl["unit"], kl["by_iteration"]) == ("kl", "nats", True)
    assert (raw["name"], raw["by_iteration"]) == ("reward_max", False)
    single, _ = get(api, "/comparison/series", run=runs, name="kl")
    assert (single["label"], single["runs"]) == ("evol-1", ["evol-1"])
    assert single["points"] == [{"x": 1, "value": 0.1, "lo": None, "hi": None, "n": None}]
    [grouped] = get(api, "/comparison/series", run=runs, name="kl", grouped=True)
    [point] = grouped["points"]
    assert (grouped["runs"], point["value"], point["n"]) == (runs, pytest.approx(0.2), 2)
    assert point["lo"] < 0.1 < 0.3 < point["hi"]  # Student's interval over two seeds
    [by_step] = get(api, "/comparison/series", run=runs, name="kl", by="step")
    assert by_step["label"] == "evol-2"
    assert [(point["x"], point["value"]) for point in by_step["points"]] == [(1, 0.1), (2, 0.2)]
    latest = get(api, "/comparison/latest", run=runs, name=["kl", "held_out"], baseline="evol-1")
    assert [figures["best_iteration"] for figures in latest] == [None, None]
    assert latest[0]["figures"][0]["difference"] is None
    [change] = latest[1]["figures"]
    assert (change["difference"]["value"], change["difference"]["lo"]) == (pytest.approx(0.2), None)
    refused(api, "/comparison/series", 409, "nosuch", "kl", run=runs, name="nosuch")


def test_label_accuracy_is_compared_by_one_oracle_and_other_figures_by_their_own(
    api: TestClient, add_run: Callable[..., None]
) -> None:
    rows = [("label_accuracy", "kept", "exact", 0.5), ("label_accuracy", "kept", "judge", 0.75)]
    rows.append(("training_label_accuracy", "", "exact", 0.25))
    add_run("a", *(SeriesPoint(1, *row, None, None, 4) for row in rows))
    names = ["label_accuracy", "training_label_accuracy"]

    def values(**parameters: str) -> list[float]:
        [figures] = get(api, "/comparison/latest", run="a", name=names, **parameters)
        return [figure["last"]["value"] for figure in figures["figures"]]

    assert (values(), values(oracle="judge"), values(oracle="human")) == ([0.5, 0.25], [0.75, 0.25], [0.25])
    [curve] = get(api, "/comparison/series", run="a", name="label_accuracy", oracle="judge")
    assert curve["points"][0]["value"] == 0.75


def test_the_last_and_the_best_iteration_are_shown_with_the_difference_to_the_baseline(
    api: TestClient, add_run: Callable[..., None]
) -> None:
    accuracy = {"base": [(1, 0.5, 0.4, 0.6), (2, 0.6, 0.5, 0.7)], "other": [(1, 0.9, 0.8, 0.95), (2, 0.7, 0.6, 0.8)]}
    for name, points in accuracy.items():
        add_run(name, *(SeriesPoint(t, "held_out", "", "", value, lo, hi, 100) for t, value, lo, hi in points))
    base, other = get(api, "/comparison/latest", run=["base", "other"], name="held_out", baseline="base")
    assert (base["best_iteration"], other["best_iteration"]) == (2, 1)
    [figure] = other["figures"]
    assert (figure["last"]["x"], figure["last"]["value"], figure["best"]["value"]) == (2, 0.7, 0.9)
    change = figure["difference"]
    # Both ends are 0.1 from the values, so those of the difference are 0.1 times the root of 2 from it.
    assert (change["value"], change["lo"], change["hi"]) == pytest.approx((0.1, 0.1 - 0.02**0.5, 0.1 + 0.02**0.5))
    assert base["figures"][0]["difference"] is None
