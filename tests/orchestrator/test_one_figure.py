"""Every view of a run shows a figure with the same value, interval and n."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from core.methods.scrl import Scrl
from core.statistics.estimates import wilson_at
from core.types import Checkpoint, OracleLabel, OracleVerdict, question_id
from orchestrator.cli import app
from orchestrator.stages.check_health import check_health
from services.api.app import PREFIX, create_app
from services.drift.series import refresh
from services.oracles.samples import draw_sample
from services.run_report.figures import figures
from storage import queries
from storage.rows import SeriesPoint, TrainedOnRow
from storage.session import Store
from tests.synthetic_run import CONFIG as BANDED
from tests.synthetic_run import context_of, create, evaluate, finish, held_out, label, stored, vote_of

CONFIG = BANDED.model_copy(update={"solver": BANDED.solver.model_copy(update={"reward": Scrl()})})
RUN, JUDGE = "one", "judge_gpt"
Figure = tuple[float, float, float, int]  # the value, the two ends of its interval, and n


@pytest.fixture
def run(sqlite: Store) -> Store:
    """A run with twenty kept questions, of which five labels are right, sixty that were not kept, all right, two
    without any answer, and an ill-posed one. A judge has graded a sample of six, one of them with the verdict
    unknown."""
    kept = [(f"What is {i} + 1?", vote_of((str(i + 1 if i < 5 else i), 5), ("0", 5))) for i in range(20)]
    others = [(f"What is {i} + 2?", vote_of((str(i + 2), 10))) for i in range(60)]
    nobody = [("What is 9 + 9?", vote_of()), ("What is 8 + 9?", vote_of()), ("What is 4 + ?", vote_of(("4", 10)))]
    with sqlite.write() as session:
        create(session, RUN, CONFIG)
        evaluate(session, RUN, 0, held_out([2, 4, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]), took=5)
        label(session, RUN, 1, [*kept, *others, *nobody], CONFIG)
        finish(session, RUN, 1, "label_questions", {}, 1.0)
        train(session, RUN, 1)
        evaluate(session, RUN, 1, held_out([8, 6, 8, 7], [1, 1, 1, 1], [1, 1, 0, 1]), took=5)
    with sqlite.read() as session:
        exact = {row.question_id: row.verdict for row in queries.questions.oracle_labels_of(session, RUN, 1, "exact")}
    drawn = [row.question_id for row in draw_sample(sqlite, RUN, 1, JUDGE, 6)]
    with sqlite.write() as session:
        unknown: OracleVerdict = "unknown"
        labels = [OracleLabel(key, JUDGE, exact[key] if i else unknown, None) for i, key in enumerate(drawn)]
        queries.questions.add_oracle_labels(session, labels)
        for t in (0, 1):
            refresh(session, RUN, t)
    return sqlite


@pytest.fixture
def api(run: Store, tmp_path: Path) -> TestClient:
    return TestClient(create_app(run, tmp_path, ask_for_keys=False), "http://localhost")


def train(session: Session, run: str, t: int) -> None:
    """Store an iteration's Solver, which learned from three questions in two steps and labelled them anew in each."""
    solver = Checkpoint(f"{run}/solver/{t}", run, "solver", t, 1, f"/checkpoints/{run}/{t}", "0" * 64, f"{run}/base/0")
    queries.checkpoints.add_checkpoint(session, solver, {})
    queries.traces.add_trained_on(session, [TrainedOnRow(question_id(run, t, i), solver.id, [1, 2]) for i in range(3)])
    every = {"majority_share": 0.5}
    first = every | {"truths_known": 3, "labelled_share": 2 / 3, "labels_checked": 2, "label_accuracy": 0.5}
    second = every | {"truths_known": 3, "labelled_share": 1.0, "labels_checked": 3, "label_accuracy": 1 / 3}
    negatives = {"negatives_checked": 1, "negative_label_accuracy": 1.0}
    for step, metrics in enumerate((first | negatives, second), 1):
        queries.figures.add_train_metrics(
            session, run=run, iteration=t, role="solver", step=step, metrics={**metrics, "step": step}
        )


def figures_of_report(store: Store) -> dict[tuple[str, str], Figure]:
    """The label accuracies of the report."""
    shown: Any = figures(store, RUN)["iterations"]
    accuracy = shown[1]["pseudo_label_accuracy"]
    by_oracle = {accuracy["oracle"]: accuracy, **accuracy["others"]}
    return {
        (oracle, over): (of_oracle[over]["value"], *of_oracle[over]["ci95"], of_oracle[over]["n"])
        for oracle, of_oracle in by_oracle.items()
        for over in ("kept", "all")
    }


def figures_of_series(store: Store) -> dict[tuple[str, str], Figure]:
    """The label accuracies of the series, which alerts and the guard use."""
    with store.read() as session:
        points = queries.series.series_of(session, RUN, "label_accuracy")
    return {(point.oracle, point.over): _figure(point) for point in points}


def figures_of_rest(api: TestClient) -> dict[tuple[str, str], Figure]:
    """The label accuracies of the REST API, which the dashboard shows."""
    accuracies = api.get(f"{PREFIX}/runs/{RUN}/audits").json()["measured"]
    return _by_oracle(accuracies)


def figures_of_metrics(
    api: TestClient, name: str = "pseudo_label_accuracy", n: str = "audited"
) -> dict[tuple[str, str], Figure]:
    """The label accuracies of the metrics for Prometheus, which Grafana shows."""
    prefix = f"coevo_{name}_"
    values: dict[tuple[str, str, str], Any] = {
        (sample.name.removeprefix(prefix), sample.labels["oracle"], sample.labels["slice"]): sample.value
        for family in text_string_to_metric_families(api.get("/metrics").text)
        for sample in family.samples
        if sample.name.startswith(prefix)
    }
    keys = {(oracle, over) for _, oracle, over in values}
    names = ("ratio", "ci_lower_ratio", "ci_upper_ratio", n)
    return {key: (*(values[part, *key] for part in names),) for key in keys}


def figures_of_command() -> dict[tuple[str, str], Figure]:
    """The label accuracies of the command line."""
    shown = json.loads(CliRunner().invoke(app, ["show", "labels", RUN, "--json"]).stdout)
    return _by_oracle(shown["measured"])


def _by_oracle(accuracies: list[dict[str, Any]]) -> dict[tuple[str, str], Figure]:
    return {(accuracy["oracle"], accuracy["over"]): _figure(accuracy["figure"]) for accuracy in accuracies}


def _figure(shown: dict[str, Any] | SeriesPoint) -> Any:
    """What REST, the command line or the series say of a figure."""
    values = shown if isinstance(shown, dict) else asdict(shown)
    return tuple(values[name] for name in ("value", "lo", "hi", "n"))


@pytest.mark.usefixtures("home")
def test_every_view_has_the_same_label_accuracy(run: Store, api: TestClient, tmp_path: Path) -> None:
    of_report = figures_of_report(run)
    assert of_report.keys() == {(oracle, over) for oracle in ("exact", JUDGE) for over in ("kept", "all")}
    for view in (
        figures_of_series(run),
        figures_of_rest(api),
        figures_of_metrics(api),
        figures_of_command(),
    ):
        assert view.keys() == of_report.keys()
        for key, figure in view.items():
            assert figure == pytest.approx(of_report[key], abs=1e-12), key
    signal = stored(context_of(run, RUN, 1, home=tmp_path), check_health)["signals"]["label_accuracy_kept"]
    assert (signal["value"], *signal["ci95"], signal["n"]) == figures_of_series(run)["exact", "kept"]
    # By hand: 5 of 20 kept labels; 65 of all 81 labels, where the ill-posed question's label is not right.
    assert of_report["exact", "kept"][::3] == (0.25, 20)
    assert of_report["exact", "all"][::3] == (65 / 81, 81)
    # A sample's figure is weighted by the strata's sizes, so its plain share is another number.
    plain = sum(exact == "right" for exact in _verdicts(run, JUDGE)) / 6
    assert abs(of_report[JUDGE, "all"][0] - plain) > 0.01


def test_every_view_has_the_same_accuracy_on_the_benchmark(run: Store, api: TestClient, tmp_path: Path) -> None:
    # By hand: 29 of 32 samples are right, but n is four, the number of items.
    latest = (29 / 32, pytest.approx(0.455, abs=1e-3), pytest.approx(0.993, abs=1e-3), 4)
    report: Any = figures(run, RUN)["iterations"]
    of_report = [(i["pass_at_1"], *i["ci95"], i["n"]) for i in report]
    assert of_report[1] == latest
    with run.read() as session:
        points = queries.series.series_of(session, RUN, "held_out")
    evaluations = [e["pass_at_1"] for e in api.get(f"{PREFIX}/runs/{RUN}/evaluations").json()]
    series = api.get(f"{PREFIX}/runs/{RUN}/series", params={"name": "held_out"}).json()
    for t, figure in enumerate(of_report):
        for view in (points[t], evaluations[t], series[t]):
            assert _figure(view) == figure
    assert figures_of_metrics(api, "held_out_accuracy", "n") == {("", ""): of_report[1]}
    signals = stored(context_of(run, RUN, 1, home=tmp_path), check_health)["signals"]
    assert (signals["pass_at_1"], signals["best_pass_at_1"]) == (of_report[1][0], of_report[1][0])


def test_every_view_has_the_same_mean_p_hat(run: Store, api: TestClient, tmp_path: Path) -> None:
    """The series and the report have its interval and n; the statistics of the iteration have its value alone."""
    report: Any = figures(run, RUN)["iterations"][1]["p_hat"]
    with run.read() as session:
        [point] = queries.series.series_of(session, RUN, "p_hat", over="all")
        statistics = queries.figures.filter_stats_of(session, RUN)[1]
    figure = _figure(point)
    assert (report["value"], *report["ci95"], report["n"]) == pytest.approx(figure)
    assert figures_of_metrics(api, "p_hat", "n")["", "all"] == figure
    assert statistics.mean_p_hat == pytest.approx(point.value)
    assert api.get(f"{PREFIX}/runs/{RUN}/iterations").json()[1]["mean_p_hat"] == statistics.mean_p_hat


@pytest.mark.usefixtures("home")
def test_every_view_has_the_same_figures_of_labels_made_in_training(
    run: Store, api: TestClient, tmp_path: Path
) -> None:
    of_report: Any = figures(run, RUN)["iterations"][1]
    # By hand: two of five labels are right; five of six prompts were labelled, so n is 5/6 of three questions, rounded
    # up. One of six prompts had negatives.
    expected = {"training_label_accuracy": (2 / 5, 3), "training_labelled_share": (5 / 6, 3)}
    expected["negative_label_accuracy"] = (1.0, 1)
    rows = json.loads(CliRunner().invoke(app, ["show", "series", RUN, "--json"]).stdout)
    for name, (value, n) in expected.items():
        with run.read() as session:
            [point] = queries.series.series_of(session, RUN, name)
        figure = _figure(point)
        assert figure == (pytest.approx(value), *wilson_at(point.value, n, n), n)
        assert (of_report[name]["value"], *of_report[name]["ci95"], of_report[name]["n"]) == figure
        [row] = [row for row in rows if row["name"] == name]
        assert (*_figure(row), row["oracle"]) == (*figure, "exact")
        prefix, count = (name, "checked") if name.endswith("accuracy") else (name.removesuffix("_share"), "n")
        assert figures_of_metrics(api, prefix, count)["exact", ""] == figure
    first, second = api.get(f"{PREFIX}/runs/{RUN}/training-labels").json()
    assert (first["step"], first["accuracy"]["value"], first["accuracy"]["n"]) == (1, 0.5, 2)
    assert (first["labelled"]["value"], first["negatives"]["n"], first["oracle"]) == (pytest.approx(2 / 3), 1, "exact")
    assert (second["accuracy"]["n"], second["negatives"]) == (3, None)


def _verdicts(store: Store, oracle: str) -> list[OracleVerdict]:
    with store.read() as session:
        return [row.verdict for row in queries.questions.oracle_labels_of(session, RUN, 1, oracle)]
