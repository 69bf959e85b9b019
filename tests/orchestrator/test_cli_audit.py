"""`coevo audit` plans an audit and draws a sample, `coevo show labels` shows the results, with their own store."""

from __future__ import annotations

import pytest

from core.types import OracleLabel
from orchestrator.installation.home import Home
from storage import queries
from storage.session import Store
from tests.commands import coevo, json_of
from tests.synthetic_run import fill_run


@pytest.fixture
def audited_store(home: Home, sqlite: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A run of several iterations that the exact oracle has graded."""
    monkeypatch.setenv("COLUMNS", "200")
    fill_run(sqlite, "demo", per_level=2)
    return sqlite


def test_a_plan_names_the_number_of_audits_or_the_detectable_drop() -> None:
    for options, expected in (
        (("--accuracy", 0.75), "1,251 audits, compared with as many earlier ones, detect a drop of 5 points from 75%"),
        (("--accuracy", 0.75, "--reference", 5000), "700 audits, compared with 5,000 earlier ones"),
        (("--have", 400), "400 audits, compared with as many earlier ones, detect a drop of 8.5 points or more"),
        (("--accuracy", 0.5, "--have", 2), "detect no drop from 50%"),
    ):
        assert expected in coevo("audit", "plan", *options).stdout
    assert json_of("audit", "plan", "--accuracy", 0.75, "--drop", 0.05)["audits"] == 1251


def test_a_sample_is_drawn_and_shown(audited_store: Store) -> None:
    first = json_of("audit", "draw", "demo", "1", "--size", "20")
    assert (first["oracle"], first["drawn"], sum(first["strata"].values())) == ("human", 20, 20)
    assert coevo("audit", "draw", "demo", "1", "--size", "30").stdout.startswith("30 drawn for human: ")
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
    text = coevo("show", "labels", "demo").stdout
    assert "an estimate from p_hat" in text
    assert "estimates from p_hat (exact, all): when each audited iteration is estimated from the others" in text
    assert "kappa of exact and human: 1.00 (" in text
