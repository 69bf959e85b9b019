"""Samples for audits and their results, over REST."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient
from labelling_requests import ITERATION, annotate, draw, samples_drawn
from sqlalchemy.orm import Session

from core.settings.config import CoEvolution
from core.statistics.audits import AuditError, Drawn, stratified_share
from core.statistics.audits import draw as core_draw
from core.statistics.estimates import wilson
from core.types import LabelledQuestion, OracleLabel, PseudoLabel, Question, question_id
from services.api.app import PREFIX, create_app
from services.api.routes.audits import LARGEST_SAMPLE
from services.oracles import accuracy, samples
from services.oracles.samples import draw_sample
from storage import queries
from storage.rows import AnnotationRow
from storage.session import Store
from tests.synthetic_run import fill_run


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    fill(store)
    return TestClient(create_app(store, tmp_path, ask_for_keys=False), base_url="http://localhost")


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
    assert check.keys() == {"oracle", "over", "error", "held", "folds"}
    assert len(errors) == len({row["iteration"] for row in audits["measured"]})
    [agreed] = audits["oracles"]
    assert (agreed["first"], agreed["second"], agreed["kappa"]["value"], audits["annotators"]) == (
        *("exact", "human"),
        *(1.0, []),
    )
    assert api.get(f"{PREFIX}/runs/none/audits").status_code == 404


def test_the_results_of_audits_are_computed_again_only_after_something_was_added(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_run(store, "demo", per_level=2)
    computed = list[str]()
    compute = accuracy._audits

    def recorded(session: Session, run: str) -> accuracy.Audits:
        computed.append(run)
        return compute(session, run)

    monkeypatch.setattr(accuracy, "_audits", recorded)
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), base_url="http://127.0.0.1")

    def answer() -> Any:
        return api.get(f"{PREFIX}/runs/demo/audits").json()

    def annotate_by(name: str) -> None:
        with store.write() as session:
            row = AnnotationRow(question_id("demo", 1, 0), name, "right", "", datetime.now(UTC))
            queries.audits.add_annotation(session, row)

    def grade() -> None:
        with store.write() as session:
            [drawn] = queries.audits.samples_of(session, "demo", 1, "judge")
            queries.questions.add_oracle_labels(session, [OracleLabel(drawn.question_id, "judge", "right", None)])

    def add_a_label() -> None:
        with store.write() as session:
            key = question_id("demo", 1, 900)
            added = Question(key, "demo", 1, 900, "1 + 2?", "1 + 2?", "demo/base/0", 0)
            queries.questions.add_questions(session, [added])
            vote = PseudoLabel("3", 6, 10, 9, 1, 0.6, "all", (("3", 6), ("4", 2)))
            queries.questions.add_labels(session, [LabelledQuestion(key, added.text, vote, "kept")])

    answers = [answer()]
    for add in (
        lambda: draw_sample(store, "demo", 1, "judge", 1),
        lambda: annotate_by("ann"),
        lambda: annotate_by("bob"),
        grade,
        add_a_label,
    ):
        assert answer() == answers[-1]
        add()
        before = len(computed)
        answers.append(answer())
        assert len(computed) == before + 1
    assert [len(answers[i]["annotators"]) for i in (2, 3)] == [0, 1]
    assert "judge" in {row["oracle"] for row in answers[4]["measured"]}
    assert answers[5] != answers[4]


def test_a_sample_can_be_drawn_and_extended(api: TestClient, store: Store) -> None:
    empty = api.get(f"{ITERATION}/samples/human").json()
    assert (empty["drawn"], empty["settled"], empty["measured"], empty["annotators"]) == (0, 0, [], {})
    drawn = draw(api, 2)
    sample = samples_drawn(store)
    assert (drawn["drawn"], [row.position for row in sample]) == (2, [0, 1])
    assert draw(api, 100)["drawn"] == 4  # the malformed question cannot be audited
    assert samples_drawn(store)[:2] == sample
    assert draw(api, 1)["drawn"] == 4
    assert [(stratum["stratum"], stratum["size"], stratum["drawn"]) for stratum in draw(api)["strata"]] == [
        ("not kept 0.2-0.4", 1, 1),
        ("kept 0.4-0.6", 1, 1),
        ("kept 0.6-0.8", 1, 1),
        ("not kept 0.8-1.0", 1, 1),
    ]
    for index in (0, 1, 2, 4):
        for name in ("ann", "bob"):
            annotate(api, index, name, "right" if index < 2 else "wrong")
    done = api.get(f"{ITERATION}/samples/human").json()
    assert (done["settled"], done["annotators"]) == (4, {"ann": 4, "bob": 4})
    kept, every = done["measured"]
    assert (kept["over"], kept["label_accuracy"]["value"], kept["population"]) == ("kept", 1, 2)
    lo, hi = wilson(2, 4) or (0, 0)
    assert every["label_accuracy"] == pytest.approx({"value": 0.5, "lo": lo, "hi": hi, "n": 4})
    with store.read() as session:
        assert stratified_share([*queries.audits.strata_of(session, RUN, 1, "human")["all"].values()]).n == 4


def test_a_sample_that_cannot_be_drawn_is_refused_with_the_reason(api: TestClient, store: Store) -> None:
    assert draw(api, 0, status=422)["errors"][0]["field"] == "body.size"
    assert draw(api, status=422, oracle="judge")["errors"][0]["field"] == "body.oracle"
    later = api.post(f"{PREFIX}/runs/{RUN}/iterations/2/samples", json={"oracle": "human", "size": 5})
    assert (later.status_code, later.json()["detail"]) == (
        409,
        "run demo, iteration 2: its questions are not all labelled yet",
    )
    assert (
        api.post(f"{PREFIX}/runs/nobody/iterations/1/samples", json={"oracle": "human", "size": 5}).status_code == 404
    )
    too_many = draw(api, LARGEST_SAMPLE + 1, status=422)
    assert too_many["detail"] == "body.size: expected at most 10000, got 10001"
    with pytest.raises(AuditError, match="exact has graded it without a sample already"):
        draw_sample(store, RUN, 1, "exact", 2)
    assert [row.question_id for row in draw_sample(store, RUN, 1, "judge", 4)] == [
        row.question_id for row in draw_sample(store, RUN, 1, "human", 4)
    ]


def test_others_can_write_while_a_draw_is_computed(
    api: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has one write lock, which a draw from an iteration with many questions would otherwise hold for
    seconds."""
    drawn: list[int] = []

    def while_others_write(*arguments: Any) -> list[Drawn]:
        with store.write() as session:  # it fails after a wait while another transaction is writing
            queries.runs.create_run(session, name="other", config=CoEvolution())
        drawn.append(len(arguments[0]))
        return core_draw(*arguments)

    monkeypatch.setattr(samples, "draw", while_others_write)
    assert draw(api, 3)["drawn"] == 3
    assert drawn == [4]


def test_agreement_is_reported_between_oracles_and_between_annotators(api: TestClient) -> None:
    assert api.get(f"{PREFIX}/runs/{RUN}/agreement").json() == {"oracles": [], "annotators": []}
    draw(api, 4)
    for index, ann, bob in ((0, "right", "right"), (1, "wrong", "wrong"), (2, "right", "right"), (4, "right", "wrong")):
        annotate(api, index, "ann", ann)
        annotate(api, index, "bob", bob)
    agreement = api.get(f"{PREFIX}/runs/{RUN}/agreement").json()
    [oracles], [annotators] = agreement["oracles"], agreement["annotators"]
    # ann and bob agree on 3 of 4; by chance they would agree on 3/4 * 1/2 + 1/4 * 1/2 = 1/2.
    assert (annotators["first"], annotators["second"]) == ("ann", "bob")
    assert (annotators["kappa"]["value"], annotators["kappa"]["n"]) == (pytest.approx(0.5), 4)
    # The settled labels, 0 right, 1 wrong and 2 right, are those of the exact oracle.
    assert (oracles["first"], oracles["second"], oracles["kappa"]["n"]) == ("exact", "human", 3)
    assert (oracles["kappa"]["value"], oracles["kappa"]["hi"]) == (1, 1)
    assert oracles["kappa"]["lo"] < 0.5
