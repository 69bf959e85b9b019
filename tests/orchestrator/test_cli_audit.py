"""`coevo audit` plans an audit and draws a sample, `coevo show labels` shows the results, with their own store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.types import OracleLabel
from orchestrator.cli import app
from storage import queries
from storage.session import Store
from tests.synthetic_run import fill_run


@pytest.fixture
def audited_store(sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A run of several iterations that the exact oracle has graded."""
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    fill_run(sqlite, "demo", per_level=2)
    return sqlite


def output_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def json_of(*arguments: str) -> Any:
    return json.loads(output_of(*arguments, "--json"))


def test_a_plan_names_the_number_of_audits_or_the_detectable_drop() -> None:
    assert output_of("audit", "plan", "--accuracy", "0.75") == (
        "1,251 audits, compared with as many earlier ones, detect a drop of 5 points from 75%, in 80% of cases "
        "(two-sided, 95%)\n"
    )
    assert json_of("audit", "plan", "--accuracy", "0.75", "--drop", "0.05")["audits"] == 1251
    assert "700 audits, compared with 5,000 earlier ones" in output_of(
        "audit", "plan", "--accuracy", "0.75", "--reference", "5000"
    )
    assert "400 audits, compared with as many earlier ones, detect a drop of 8.5 points or more" in output_of(
        "audit", "plan", "--have", "400"
    )
    assert "detect no drop from 50%" in output_of("audit", "plan", "--accuracy", "0.5", "--have", "2")


def test_a_sample_is_drawn_and_shown(audited_store: Store) -> None:
    first = json_of("audit", "draw", "demo", "1", "--size", "20")
    assert (first["oracle"], first["drawn"], sum(first["strata"].values())) == ("human", 20, 20)
    assert output_of("audit", "draw", "demo", "1", "--size", "30").startswith("30 drawn for human: ")
    with audited_store.write() as session:
        rows = queries.audits.samples_of(session, "demo", 1, "human")
        exact_labels = queries.questions.oracle_labels_of(session, "demo", 1, "exact")
        exact = {row.question_id: row.verdict for row in exact_labels}
        agreeing = [OracleLabel(row.question_id, "human", exact[row.question_id], None) for row in rows]
        queries.questions.add_oracle_labels(session, agreeing)
    results = json_of("show", "labels", "demo")
    [kept, every] = [row for row in results["measured"] if row["oracle"] == "human"]
    assert (every["iteration"], every["over"], every["frame"], every["figure"]["n"]) == (1, "all", "sample", 30)
    assert every["population"] > 30 > kept["figure"]["n"]
    exact_rows = [row for row in results["measured"] if row["oracle"] == "exact"]
    assert {row["frame"] for row in exact_rows} == {"all"}
    whole = next(row for row in exact_rows if (row["iteration"], row["over"]) == (1, "all"))["figure"]["value"]
    assert every["figure"]["lo"] <= whole <= every["figure"]["hi"]
    # The other iterations have no human audit, so their figures are estimates and marked as such.
    others = {row["iteration"] for row in exact_rows} - {1}
    assert {(row["iteration"], row["frame"]) for row in results["estimated"] if row["over"] == "all"} == {
        (iteration, None) for iteration in others
    }
    assert {(row["oracle"], row["over"]) for row in results["checks"]} == {("exact", "kept"), ("exact", "all")}
    [agreement] = results["oracles"]
    assert (agreement["first"], agreement["second"], agreement["kappa"]["value"]) == ("exact", "human", 1)
    text = output_of("show", "labels", "demo")
    assert "an estimate from p_hat" in text
    assert (
        "estimates from p_hat (exact, all): when each audited iteration is estimated from the others, the error is"
        in text
    )
    assert "kappa of exact and human: 1.00 (" in text


def test_a_request_that_cannot_be_fulfilled_is_refused_with_the_reason(audited_store: Store) -> None:
    for arguments, complaint in (
        (("audit", "plan", "--drop", "0"), "drop: expected more than 0 and at most the accuracy, 0.8, got 0"),
        (("audit", "draw", "demo", "1", "--size", "0"), "size: expected at least 1, got 0"),
        (
            ("audit", "draw", "demo", "99", "--size", "5"),
            "run demo, iteration 99: its questions are not all labelled yet",
        ),
        (("audit", "draw", "nobody", "1", "--size", "5"), "run nobody: no such run"),
        (
            ("audit", "draw", "demo", "1", "--size", "5", "--oracle", "exact"),
            "exact has graded it without a sample already",
        ),
        (("show", "labels", "nobody"), "run nobody: no such run"),
    ):
        result = CliRunner().invoke(app, [*arguments])
        assert (result.exit_code, complaint in result.stderr) == (1, True), result.output
