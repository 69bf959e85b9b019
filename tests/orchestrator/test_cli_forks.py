"""Commands that show a fork, or that decide about what one needs: series, compare, check, export, thin, verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.installation.home import Home
from orchestrator.runs import prepare
from storage import queries
from storage.session import Store
from tests.commands import coevo, json_of, refusal
from tests.orchestrator.stored_runs import RUN, copy_of, go_on


@pytest.fixture(scope="module")
def forked_home(loop_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The home of the run "whole" of two iterations, with its fork "fork", which has made the second one anew."""
    home, store = copy_of(loop_home, tmp_path_factory.mktemp("forked"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COEVO_HOME", str(home.path))
        patch.delenv("COEVO_DATABASE", raising=False)
        prepare(home, store, "fork", "", 0, {"seed": 11}, from_run="whole:1")
    go_on(store, home, "fork")
    store.close()
    return home


@pytest.fixture(autouse=True)
def forked(forked_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    monkeypatch.chdir(tmp_path)
    _, store = copy_of(forked_home, tmp_path)
    return store


def test_series_name_the_run_of_an_inherited_iteration() -> None:
    points = json_of("show", "series", "fork", "--name", "kept_share")
    assert {point["iteration"]: point["inherited_from"] for point in points} == {1: RUN, 2: None}
    assert "1 of whole" in coevo("show", "series", "fork", "--name", "kept_share").stdout
    coevo("show", "series", "fork", "--refresh")
    assert json_of("show", "series", "fork", "--name", "kept_share") == points


def test_a_comparison_says_where_a_fork_begins_and_draws_it(tmp_path: Path) -> None:
    comparison = json_of("compare", RUN, "fork")
    assert {arm["arm"]: arm["inherited"] for arm in comparison["arms"]} == {
        **dict.fromkeys([RUN, f"{RUN}/labelled"], None),
        **dict.fromkeys(["fork", "fork/labelled"], 1),
    }
    assert [arm["settings"].get("forked_after") for arm in comparison["arms"]] == [None, None, 1, 1]
    before = [[point for point in arm["curves"]["greedy"] if point["iteration"] <= 1] for arm in comparison["arms"]]
    assert before[0] == before[2] != []
    assert "up to 1 of fork" in comparison["remarks"][-1]
    coevo("compare", RUN, "fork", "--metric", "greedy", "--series", "kept_share", "--picture", "p.svg")
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


def test_a_check_names_what_keeps_a_fork_from_beginning_and_counts_what_is_left_to_do(forked: Store) -> None:
    asked = (("whole:1", 2), ("whole:1", 3), ("whole:0", 1))
    short, long, first = (json_of("check", "--from", at, "--iterations", n) for at, n in asked)
    assert (short["run"], short["faults"], short["details"]["iterations"]) == ("whole-from-1", [], 2)
    one, two, other = (answers["estimate"]["run_hours"][0] for answers in (short, long, first))
    assert one == other < two
    wrong = json_of("check", "--from", "whole:1", "--set", "shared=true", "--set", "base_model=other", status=1)
    assert {"shared", "base_model"} <= {fault["setting"] for fault in wrong["faults"]}
    replays = json_of("check", "--from", "whole:1", "--set", "dataset.replay.label=newest", status=1)
    assert [fault["setting"] for fault in replays["faults"]] == ["dataset.replay.label"]
    with forked.read() as session:
        assert {run.name for run in queries.runs.list_runs(session)} == {RUN, "fork"}


def test_an_export_says_which_run_has_the_first_iterations() -> None:
    assert "0 to 1 from run whole" in coevo("export", "questions", "fork", "all", "q.jsonl").stdout
    assert json_of("export", "votes", "fork", RUN, "all", "v.jsonl")["runs"][0]["inherited"] == {RUN: [0, 1]}
    assert json_of("export", "metrics", "fork", "m.jsonl")["inherited"] == {RUN: [0, 1]}


def test_a_run_is_thinned_and_deleted_only_as_far_as_its_fork_lets_it() -> None:
    thinned = coevo("runs", "thin", RUN, "--yes").stdout
    assert "up to iteration 1 stay, for fork" in thinned
    assert "run fork: no violations" in coevo("store", "verify", "fork").stdout
    assert "fork" in refusal("runs", "delete", RUN, "--yes")
    coevo("runs", "delete", "fork", "--yes")
    coevo("runs", "delete", RUN, "--yes")
