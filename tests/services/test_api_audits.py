"""What a run's audits come to, over REST."""

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


def test_each_figure_says_what_was_asked_for_it(store: Store, tmp_path: Path) -> None:
    fill_run(store, "demo", per_level=2)
    drawn = draw_sample(store, "demo", 1, "human", 30)
    with store.write() as session:
        exact = {
            each.question_id: each.verdict for each in queries.questions.oracle_labels_of(session, "demo", 1, "exact")
        }
        agreeing = [OracleLabel(row.question_id, "human", exact[row.question_id], None) for row in drawn]
        queries.questions.add_oracle_labels(session, agreeing)
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), base_url="http://127.0.0.1")
    found = api.get(f"{PREFIX}/runs/demo/audits").json()
    frames = {(each["oracle"], each["iteration"], each["over"]): each["frame"] for each in found["measured"]}
    assert (frames["human", 1, "all"], frames["exact", 1, "all"]) == ("sample", "all")
    [sampled] = [each for each in found["measured"] if (each["oracle"], each["over"]) == ("human", "all")]
    assert sampled["figure"]["n"] == 30 < sampled["population"]
    assert {(each["oracle"], each["frame"]) for each in found["estimated"]} == {("human", None)}
    assert {each["iteration"] for each in found["estimated"]}.isdisjoint({1})
    [check] = [each for each in found["checks"] if (each["oracle"], each["over"]) == ("exact", "all")]
    off = [fold["estimated"]["value"] - fold["measured"]["value"] for fold in check["folds"]]
    assert check["error"] == pytest.approx(sum(abs(each) for each in off) / len(off))
    assert check["bias"] == pytest.approx(sum(off) / len(off))
    assert 0 <= check["held"] <= len(off) == len({each["iteration"] for each in found["measured"]})
    [agreed] = found["oracles"]
    assert (agreed["first"], agreed["second"], agreed["kappa"]["value"], found["annotators"]) == (
        *("exact", "human"),
        *(1.0, []),
    )
    assert api.get(f"{PREFIX}/runs/none/audits").status_code == 404
