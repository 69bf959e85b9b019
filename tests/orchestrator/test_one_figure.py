"""Label accuracy is one number: every view of a run shows the same value, interval and n."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from core.types import OracleLabel, OracleVerdict
from orchestrator.cli import app
from orchestrator.report import figures
from services.api.app import PREFIX, create_app
from services.drift.series import refresh
from services.oracles.samples import draw_sample
from storage import queries
from storage.session import Store
from tests.synthetic_run import CONFIG, create, evaluate, finish, held_out, label, vote_of

RUN, JUDGE = "one", "judge_gpt"
Figure = tuple[float, float, float, int]  # value, ends of its interval, n


@pytest.fixture
def run(sqlite: Store) -> Store:
    """Twenty kept questions, of which five labels are right, and sixty that were not kept, all right. Two that nobody
    answered, and one that has no answer. A judge was asked of a sample of six, and could not decide once."""
    kept = [(f"What is {i} + 1?", vote_of((str(i + 1 if i < 5 else i), 5), ("0", 5))) for i in range(20)]
    others = [(f"What is {i} + 2?", vote_of((str(i + 2), 10))) for i in range(60)]
    nobody = [("What is 9 + 9?", vote_of()), ("What is 8 + 9?", vote_of()), ("What is 4 + ?", vote_of(("4", 10)))]
    with sqlite.write() as session:
        create(session, RUN, CONFIG)
        evaluate(session, RUN, 0, held_out([2, 4], [1, 0], [0, 1]), took=5)
        label(session, RUN, 1, [*kept, *others, *nobody], CONFIG)
        finish(session, RUN, 1, "label_questions", {}, 1.0)
    with sqlite.read() as session:
        exact = {row.question_id: row.verdict for row in queries.oracle_labels_of(session, RUN, 1, "exact")}
    drawn = [row.question_id for row in draw_sample(sqlite, RUN, 1, JUDGE, 6)]
    with sqlite.write() as session:
        unknown: OracleVerdict = "unknown"
        labels = [OracleLabel(key, JUDGE, exact[key] if i else unknown, None) for i, key in enumerate(drawn)]
        queries.add_oracle_labels(session, labels)
        refresh(session, RUN, 1)
    return sqlite


def reported(store: Store) -> dict[tuple[str, str], Figure]:
    """The report's."""
    shown: Any = figures(store, RUN)["iterations"]
    accuracy = shown[1]["pseudo_label_accuracy"]
    by_oracle = {accuracy["oracle"]: accuracy, **accuracy["others"]}
    return {
        (oracle, over): (of_oracle[over]["value"], *of_oracle[over]["ci95"], of_oracle[over]["n"])
        for oracle, of_oracle in by_oracle.items()
        for over in ("kept", "all")
    }


def stored(store: Store) -> dict[tuple[str, str], Figure]:
    """The series', which alerts and the guard go by."""
    with store.read() as session:
        points = queries.series_of(session, RUN, "label_accuracy")
    return {(p.oracle, p.over): (p.value, p.lo, p.hi, p.n) for p in points if p.lo is not None and p.hi is not None}


def served(api: TestClient) -> dict[tuple[str, str], Figure]:
    """REST's, which the dashboard draws."""
    accuracies = api.get(f"{PREFIX}/runs/{RUN}/audits").json()["measured"]
    return _by_oracle(accuracies)


def scraped(api: TestClient) -> dict[tuple[str, str], Figure]:
    """Prometheus', which Grafana draws."""
    prefix = "coevo_pseudo_label_accuracy_"
    values = {
        (sample.name.removeprefix(prefix), sample.labels["oracle"], sample.labels["slice"]): sample.value
        for family in text_string_to_metric_families(api.get("/metrics").text)
        for sample in family.samples
        if sample.name.startswith(prefix)
    }
    keys = {(oracle, over) for _, oracle, over in values}
    return {
        key: (
            values["ratio", *key],
            values["ci_lower_ratio", *key],
            values["ci_upper_ratio", *key],
            int(values["audited", *key]),
        )
        for key in keys
    }


def printed(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Figure]:
    """The command line's."""
    monkeypatch.setenv("COEVO_HOME", str(home))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    shown = json.loads(CliRunner().invoke(app, ["audit", "show", RUN, "--json"]).stdout)
    return _by_oracle(shown["measured"])


def _by_oracle(accuracies: list[dict[str, Any]]) -> dict[tuple[str, str], Figure]:
    figures = {(accuracy["oracle"], accuracy["over"]): accuracy["figure"] for accuracy in accuracies}
    return {key: (figure["value"], figure["lo"], figure["hi"], figure["n"]) for key, figure in figures.items()}


def test_every_view_has_the_same_label_accuracy(run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = TestClient(create_app(run, tmp_path, ask_for_keys=False), "http://localhost")
    of_report = reported(run)
    assert of_report.keys() == {(oracle, over) for oracle in ("exact", JUDGE) for over in ("kept", "all")}
    for view in (stored(run), served(api), scraped(api), printed(tmp_path, monkeypatch)):
        assert view.keys() == of_report.keys()
        for key, figure in view.items():
            assert figure == pytest.approx(of_report[key], abs=1e-12), key
    # by hand: 5 of 20 kept; 65 of 81, without the two that nobody answered, the ill-posed one not right
    assert of_report["exact", "kept"][::3] == (0.25, 20)
    assert of_report["exact", "all"][::3] == (65 / 81, 81)
    # a sample is weighted to the whole: its plain share is another number
    plain = sum(exact == "right" for exact in _verdicts(run, JUDGE)) / 6
    assert abs(of_report[JUDGE, "all"][0] - plain) > 0.01


def _verdicts(store: Store, oracle: str) -> list[OracleVerdict]:
    with store.read() as session:
        return [row.verdict for row in queries.oracle_labels_of(session, RUN, 1, oracle)]
