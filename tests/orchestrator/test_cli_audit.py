"""`coevo audit`: planning, drawing and showing, on a store of its own."""

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
def place(sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A run of several iterations that the exact oracle has graded."""
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    fill_run(sqlite, "demo", per_level=2)
    return sqlite


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["audit", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def told(*arguments: str) -> Any:
    return json.loads(said(*arguments, "--json"))


def test_a_plan_says_how_many() -> None:
    assert said("plan", "--accuracy", "0.75") == (
        "1,251 audits against as many before see a drop of 5 points from 75%, in 80% of cases (two-sided, 95%)\n"
    )
    assert told("plan", "--accuracy", "0.75", "--drop", "0.05")["audits"] == 1251
    assert "700 audits against 5,000 before" in said("plan", "--accuracy", "0.75", "--reference", "5000")
    assert "400 audits against as many before see a drop of 8.5 points or more" in said("plan", "--have", "400")
    assert "see no drop from 50%" in said("plan", "--accuracy", "0.5", "--have", "2")


def test_a_sample_is_drawn_and_shown(place: Store) -> None:
    first = told("draw", "demo", "1", "--size", "20")
    assert (first["oracle"], first["drawn"], sum(first["strata"].values())) == ("human", 20, 20)
    assert said("draw", "demo", "1", "--size", "30").startswith("30 drawn for human: ")
    with place.write() as session:
        rows = queries.audits.samples_of(session, "demo", 1, "human")
        exact = {
            each.question_id: each.verdict for each in queries.questions.oracle_labels_of(session, "demo", 1, "exact")
        }
        agreeing = [OracleLabel(row.question_id, "human", exact[row.question_id], None) for row in rows]
        queries.questions.add_oracle_labels(session, agreeing)
    found = told("show", "demo")
    [kept, every] = [each for each in found["measured"] if each["oracle"] == "human"]
    assert (every["iteration"], every["over"], every["frame"], every["figure"]["n"]) == (1, "all", "sample", 30)
    assert every["population"] > 30 > kept["figure"]["n"]
    exactly = [each for each in found["measured"] if each["oracle"] == "exact"]
    assert {each["frame"] for each in exactly} == {"all"}
    whole = next(each for each in exactly if (each["iteration"], each["over"]) == (1, "all"))["figure"]["value"]
    assert every["figure"]["lo"] <= whole <= every["figure"]["hi"]
    # The other iterations have no human audit: an estimate, marked as such.
    others = {each["iteration"] for each in exactly} - {1}
    assert {(each["iteration"], each["frame"]) for each in found["estimated"] if each["over"] == "all"} == {
        (iteration, None) for iteration in others
    }
    assert {(each["oracle"], each["over"]) for each in found["checks"]} == {("exact", "kept"), ("exact", "all")}
    [agreement] = found["oracles"]
    assert (agreement["first"], agreement["second"], agreement["kappa"]["value"]) == ("exact", "human", 1)
    text = said("show", "demo")
    assert "an estimate from p_hat" in text
    assert "from p_hat (exact, all): each audited iteration, estimated from the others, is off by" in text
    assert "kappa of exact and human: 1.00 (" in text


def test_what_cannot_be_done_is_said(place: Store) -> None:
    for arguments, complaint in (
        (("plan", "--drop", "0"), "drop: expected more than 0 and at most the accuracy, 0.8, got 0"),
        (("draw", "demo", "1", "--size", "0"), "size: expected at least 1, got 0"),
        (("draw", "demo", "99", "--size", "5"), "run demo, iteration 99: its questions are not all labelled yet"),
        (("draw", "nobody", "1", "--size", "5"), "run nobody: no such run"),
        (("draw", "demo", "1", "--size", "5", "--oracle", "exact"), "exact has graded it without a sample already"),
        (("show", "nobody"), "run nobody: no such run"),
    ):
        result = CliRunner().invoke(app, ["audit", *arguments])
        assert (result.exit_code, complaint in result.stderr) == (1, True), result.output
