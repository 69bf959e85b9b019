"""The results of a run's audits, over REST."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from core.types import OracleLabel
from services.api.app import PREFIX, create_app
from services.oracles.samples import draw_sample
from storage import queries
from storage.session import Store
from tests.synthetic_run import fill_run


def test_each_figure_of_a_run_s_audits_names_its_oracle_and_what_was_audited(store: Store, tmp_path: Path) -> None:
    fill_run(store, "demo", per_level=2)
    drawn = draw_sample(store, "demo", 1, "human", 30)
    with store.write() as session:
        exact_labels = queries.questions.oracle_labels_of(session, "demo", 1, "exact")
        exact = {row.question_id: row.verdict for row in exact_labels}
        agreeing = [OracleLabel(row.question_id, "human", exact[row.question_id], None) for row in drawn]
        queries.questions.add_oracle_labels(session, agreeing)
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), base_url="http://127.0.0.1")
    audits = api.get(f"{PREFIX}/runs/demo/audits").json()
    frames = {(row["oracle"], row["iteration"], row["over"]): row["frame"] for row in audits["measured"]}
    assert (frames["human", 1, "all"], frames["exact", 1, "all"]) == ("sample", "all")
    [sampled] = [row for row in audits["measured"] if (row["oracle"], row["over"]) == ("human", "all")]
    assert sampled["figure"]["n"] == 30 < sampled["population"]
    assert {(row["oracle"], row["frame"]) for row in audits["estimated"]} == {("human", None)}
    assert {row["iteration"] for row in audits["estimated"]}.isdisjoint({1})
    [check] = [row for row in audits["checks"] if (row["oracle"], row["over"]) == ("exact", "all")]
    errors = [fold["estimated"]["value"] - fold["measured"]["value"] for fold in check["folds"]]
    assert check["error"] == pytest.approx(sum(abs(error) for error in errors) / len(errors))
    assert check["bias"] == pytest.approx(sum(errors) / len(errors))
    assert len(errors) == len({row["iteration"] for row in audits["measured"]})
    [agreed] = audits["oracles"]
    assert (agreed["first"], agreed["second"], agreed["kappa"]["value"], audits["annotators"]) == (
        *("exact", "human"),
        *(1.0, []),
    )
    assert api.get(f"{PREFIX}/runs/none/audits").status_code == 404
