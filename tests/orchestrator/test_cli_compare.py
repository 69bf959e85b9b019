"""`coevo compare` on benchmarks and with series: the table, what is missing, the pictures, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.settings.evaluation import Protocol
from core.settings.parsing import parse_config
from core.settings.training import Sampling
from core.types import Checkpoint, Evaluated
from orchestrator.installation.home import Home
from orchestrator.pictures import comparison as pictures
from orchestrator.pictures.comparison import Panel
from orchestrator.question_sets.benchmarks import read_suite
from storage import queries
from storage.rows import ExperimentRun, SeriesPoint
from storage.session import Store
from tests.commands import coevo, json_of, refusal
from tests.stored_evaluations import store_answers_of
from tests.synthetic_run import add_evaluations, create

SUITE = read_suite("srt").protocols()  # 32 samples on each of three benchmarks


@pytest.fixture
def store(home: Home, sqlite: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Runs `mine` and `other`, whose base model and first Solver were evaluated as the suite srt says; `other`'s Solver
    was not yet evaluated on AMC."""
    monkeypatch.setenv("COLUMNS", "120")
    for run in ("mine", "other"):
        with sqlite.write() as session:
            create(session, run)
            solver = Checkpoint(f"{run}/solver/1", run, "solver", 1, 2, "/m", f"{run}1", None)
            queries.checkpoints.add_checkpoint(session, solver, {})
            for step in (1, 2):
                queries.figures.add_train_metrics(
                    session, run=run, iteration=1, role="solver", step=step, metrics={"kl": step / 10}
                )
            queries.series.put_series(session, run, [SeriesPoint(1, "kl", "", "", 0.15, None, None, 2)])
        for benchmark, protocol in SUITE.items():
            for model, right in ((f"{run}/base/0", 8), (f"{run}/solver/1", 16)):
                if (model, benchmark) != ("other/solver/1", "amc23"):
                    words = ["R" * right + "X" * (32 - right), "X" * 32]
                    store_answers_of(sqlite, model, benchmark, words, protocol=protocol, checkpoint=model)
    return sqlite


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[Panel]:
    """The panels that a command draws."""
    drawn: list[Panel] = []
    picture_of = pictures.picture_of

    def noted(panels: Any, *columns: Any) -> bytes:
        drawn.extend(panels)
        return picture_of(panels, *columns)

    monkeypatch.setattr(pictures, "picture_of", noted)
    return drawn


def output_of(*arguments: object) -> str:
    return coevo("compare", *arguments).stdout


def add_run(session: Session, name: str, right: Sequence[bool], kl: float, seed: int = 1) -> None:
    """A run of which only S(1) was evaluated, on a question for each of `right`."""
    config = parse_config({"iterations": 1, "seed": seed, "evaluation": {"benchmark": "b.jsonl"}}, "test")
    queries.runs.create_run(session, name=name, config=config)
    solver = Checkpoint(f"{name}/solver/1", name, "solver", 1, 2, "/m", name, None)
    queries.checkpoints.add_checkpoint(session, solver, {})
    items = [Evaluated(f"q{i}", None, 2, 2 * is_right, is_right, is_right) for i, is_right in enumerate(right)]
    add_evaluations(session, checkpoint=solver.id, benchmark="b.jsonl", items=items)
    queries.series.put_series(session, name, [SeriesPoint(1, "kl", "", "", kl, None, None, 2)])


def test_models_are_compared_on_a_suite_and_on_its_average(store: Store) -> None:
    text = output_of("mine:base", "mine:1", "--suite", "srt")
    lines = [line.split() for line in text.splitlines()]
    assert ["aime24", "aime25", "amc23"] in lines
    assert ["mean@32"] * 3 in lines
    assert ["mine:base", *["12.5"] * 4] in lines
    assert ["mine:1", *["25.0"] * 4] in lines
    assert ["+12.5"] * 4 in lines
    assert "difference to mine:base" in text
    assert "This makes it" not in text


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_figure_of_an_arm_is_cut_off_in_a_narrow_terminal(
    store: Store, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    with store.write() as session:
        for position, arm in enumerate(("baseline", "a_much_longer_name_of_an_arm")):
            for seed in range(1, 7):
                name = f"{arm}-{seed}"
                add_run(session, name, [True, *[(seed + i) % (3 + position) > 0 for i in range(7)]], 0.1, seed)
                accuracy = SeriesPoint(1, "label_accuracy", "kept", "exact", 0.7 + seed / 100, 0.6, 0.9, 100)
                queries.series.put_series(session, name, [accuracy])
                queries.experiments.add_run(session, ExperimentRun(name, "wide", arm, position, seed))
    comparison = json_of("compare", "wide")
    monkeypatch.setenv("COLUMNS", str(columns))
    text = output_of("wide")
    assert max(map(len, text.splitlines())) <= columns
    for arm in comparison["arms"]:
        for name in ("greedy", "majority", "pass_at_1", "label_accuracy"):
            interval = arm["curves"][name][-1]["interval"]
            assert f"{100 * interval['lo']:.1f} to {100 * interval['hi']:.1f}" in text
        for difference in arm["differences"].values():
            assert f"sign p = {difference['over_seeds']['sign_p']:.2g}" in text
    assert "labels" in text


def test_a_missing_evaluation_is_named_with_the_command_that_asks_in_the_same_way(store: Store) -> None:
    text = output_of("mine:1", "other:1", "http://h/v1#m", "--suite", "srt")
    assert "other:1: no evaluation to compare on amc23. This makes it: coevo evaluate other:1 --suite srt\n" in text
    assert "This makes it: coevo evaluate http://h/v1 --model m --suite srt\n" in text
    text = output_of("mine:1", "other:1", "--benchmark", "amc23", "--benchmark", "aime24", "--metric", "pass@16")
    assert "This makes it: coevo evaluate other:1 amc23 --samples 32 --max-tokens 3072\n" in text
    text = output_of("mine:1", "--benchmark", "amc23", "--benchmark", "math500", "--metric", "pass@16")
    assert "This makes it: coevo evaluate mine:1 math500 --samples 16\n" in text
    comparison = json_of("compare", "mine:1", "other:1", "--suite", "srt")
    assert comparison["missing"] == {"other:1": ["amc23"]}
    assert [row["average"] is None for row in comparison["rows"]] == [False, True]
    protocol = Protocol(samples=2, sampling=Sampling(temperature=0.6, top_p=0.95, top_k=20))
    store_answers_of(store, "/m/one", "math500", ["RX"], protocol=protocol)
    options = "--samples 2 --temperature 0.6 --top-p 0.95 --top-k 20"
    text = output_of("/m/one", "mine:1", "--benchmark", "math500")
    assert f"This makes it: coevo evaluate mine:1 math500 {options}\n" in text


def test_a_branch_on_labelled_data_is_drawn_as_a_line_of_its_own(
    store: Store, tmp_path: Path, panels: list[Panel]
) -> None:
    branch = Checkpoint("mine/labelled/1", "mine", "labelled", 1, 2, "/m", "b", "mine/solver/1")
    with store.write() as session:
        queries.checkpoints.add_checkpoint(session, branch, {})
    store_answers_of(store, branch.id, "aime24", ["R" * 32] * 2, protocol=SUITE["aime24"], checkpoint=branch.id)
    arguments = ("mine", "mine/labelled", "--benchmark", "aime24", "--series", "kl")
    output_of(*arguments, "--picture", str(tmp_path / "branch.png"))
    accuracy, kl = panels
    lines = {name: {t: estimate.value for t, estimate in line.items()} for name, line in accuracy.lines.items()}
    assert lines == {"mine": {0: 0.125, 1: 0.25}, "mine/labelled": {1: 1}}
    assert kl.lines.keys() == {"mine"}


def test_several_metrics_are_in_one_table(store: Store) -> None:
    text = output_of("mine:base", "mine:1", "--suite", "srt", "--metric", "pass@1", "--metric", "pass@16")
    lines = [line.split() for line in text.splitlines()]
    assert [line[0] for line in lines if line[:1] and line[0].startswith("mine")] == ["mine:base"] * 2 + ["mine:1"] * 2
    # C(24, 16) / C(32, 16) sets of 16 have none of the 8 right answers to the first question: 0.12%.
    assert ["mine:base", *["49.9"] * 4] in lines
    rows = json_of("compare", "mine:base", "mine:1", "--suite", "srt", "--metric", "pass@16")["rows"]
    assert rows[0]["average"]["figure"]["value"] == pytest.approx((1 - 735_471 / 601_080_390) / 2)


def test_a_table_that_is_wider_than_the_terminal_is_cut_into_several(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = output_of("mine:base", "mine:1", "--suite", "srt")
    assert max(map(len, text.splitlines()[:20])) <= 60
    assert text.count("mine:base") == 3  # twice in the tables, once below them
    assert "…" not in text


def test_a_folder_is_found_by_any_path_to_it(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "base").mkdir(parents=True)
    store_answers_of(store, str(tmp_path / "models" / "base"), "amc23", ["R" * 32] * 2, protocol=SUITE["amc23"])
    monkeypatch.chdir(tmp_path)
    comparison = json_of("compare", "models/base", "mine:1", "--benchmark", "amc23")
    assert comparison["missing"] == {}
    assert comparison["rows"][0]["cells"]["amc23"]["figure"]["value"] == 1


def test_models_are_drawn_by_k(store: Store, tmp_path: Path, panels: list[Panel]) -> None:
    picture = tmp_path / "k.png"
    arguments = ("mine:base", "mine:1", "--benchmark", "aime24", "--benchmark", "aime25", "--picture", str(picture))
    assert f"wrote {picture}\n" in output_of(*arguments)
    drawn = [panel.title for panel in panels]
    json_of("compare", *arguments)  # the picture's path is not on standard output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert drawn == [
        f"{benchmark}: {figure}"
        for figure in ("pass@k", "maj@k", "majority's share")
        for benchmark in ("aime24", "aime25")
    ]
    of_base = panels[0].lines["mine:base"]
    assert [*of_base] == [1, 2, 4, 8, 16, 32]
    assert (of_base[1].value, of_base[32].value, panels[2].lines["mine:1"][1].value) == (0.125, 0.5, 0.25)
    assert panels[4].lines["mine:1"][1].value == 1  # a single answer is its own majority


def test_runs_are_drawn_by_iteration_or_step_beside_their_series(
    store: Store, tmp_path: Path, panels: list[Panel]
) -> None:
    picture = ["--series", "kl", "--picture", str(tmp_path / "runs.png")]
    output_of("mine", "other", "--suite", "srt", *picture)
    assert [panel.title for panel in panels] == [*(f"{name}, mean@32" for name in SUITE), "average", "kl, nats"]
    assert {name: [*line] for name, line in panels[3].lines.items()} == {"mine": [0, 1], "other": [0]}
    assert [point.value for point in panels[0].lines["mine"].values()] == [0.125, 0.25]
    assert (panels[4].share, panels[0].share, panels[4].x) == (False, True, "iteration")
    panels.clear()
    output_of("mine", "other", "--benchmark", "aime24", "--metric", "pass@2", "--by", "step", *picture)
    assert [panel.title for panel in panels] == ["aime24, pass@2", "kl, nats"]
    assert [[*panel.lines["mine"]] for panel in panels] == [[0, 2], [1, 2]]
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_series_alone_need_no_benchmark_in_common(store: Store, tmp_path: Path, panels: list[Panel]) -> None:
    arguments = ["mine", "other", "--series", "kl", "--by", "step"]
    curves = json_of("compare", *arguments, "--picture", tmp_path / "kl.png")
    assert [point["value"] for point in curves["kl"]["other"].values()] == [0.1, 0.2]
    assert [panel.title for panel in panels] == ["kl, nats"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("mine:1", "--suite", "srt", "--metric", "pass@33"), "metric pass@33: expected 33 samples of each question"),
        (("mine", "other", "--series", "nosuch", "--json"), "series nosuch: expected one of kl"),
        (("mine", "other:1", "--suite", "srt", "--picture", "x.png"), "expected only runs or only single models"),
        (("mine:1", "--suite", "srt", "--series", "kl", "--picture", "x.png"), "--series: "),
        (("mine", "--series", "kl", "--picture", "nowhere/x.png"), "nowhere/x.png: "),
    ],
)
def test_what_cannot_be_compared_is_refused(store: Store, arguments: tuple[str, ...], named: str) -> None:
    assert named in refusal("compare", *arguments)


@pytest.mark.parametrize("name", ["fig.jpg", "fig", "fig.png.gz", ".pdf"])
def test_a_picture_of_another_kind_is_refused_by_name(store: Store, tmp_path: Path, name: str) -> None:
    arguments = ("mine", "--series", "kl", "--picture", str(tmp_path / name))
    assert "--picture" in refusal("compare", *arguments, status=2)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")]
)
def test_the_suffix_decides_what_a_picture_is(store: Store, tmp_path: Path, name: str, start: bytes) -> None:
    for arguments in (("mine", "--series", "kl"), ("mine:1", "--benchmark", "amc23")):
        output_of(*arguments, "--picture", str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(start)


def test_runs_are_drawn_by_any_metric_with_their_seeds(store: Store, tmp_path: Path, panels: list[Panel]) -> None:
    with store.write() as session:
        for seed, right in enumerate([(True, False), (True, True)], 1):
            add_run(session, f"x-{seed}", right, kl=seed / 10)
            queries.experiments.add_run(session, ExperimentRun(f"x-{seed}", "x", "full", 0, seed))
    metrics = [option for name in ("pass@1", "majority", "kl") for option in ("--metric", name)]
    output_of("x", *metrics, "--picture", str(tmp_path / "x.png"))
    titles = ["pass@1 on b.jsonl", "accuracy of the majority on b.jsonl", "kl, nats"]
    assert [panel.title for panel in panels] == titles
    dots = [[{t: figure.value for t, figure in run.items()} for run in panel.runs["full"]] for panel in panels]
    assert dots == [[{1: 0.5}, {1: 1.0}], [{1: 0.5}, {1: 1.0}], [{1: 0.1}, {1: 0.2}]]


def test_models_that_were_asked_other_questions_are_refused(store: Store) -> None:
    model = "other/solver/1"
    store_answers_of(store, model, "amc23", ["R" * 32], protocol=Protocol(samples=32), checkpoint=model)
    refused = refusal("compare", "mine:1", "other:1", "--benchmark", "amc23")
    assert "benchmark amc23: expected the same questions, asked in the same way, got mine:1: 2 questions" in refused
    assert "other:1: 1 questions" in refused
