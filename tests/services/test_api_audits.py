"""Samples for audits and their results, over REST."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from api_examples import RUN
from fastapi.testclient import TestClient
from labelling_requests import annotate, draw, samples_drawn
from sqlalchemy.orm import Session

from core.settings.config import CoEvolution
from core.statistics.audits import AuditError, Drawn, stratified_share
from core.statistics.audits import draw as core_draw
from core.statistics.estimates import wilson
from core.types import LabelledQuestion, OracleLabel, PseudoLabel, Question, question_id
from services.api.routes.audits import LARGEST_SAMPLE
from services.oracles import accuracy, samples
from services.oracles.samples import draw_sample
from storage import queries
from storage.rows import AnnotationRow
from storage.session import Store
from tests.api_server import api_of, get, post
from tests.synthetic_run import fill_run

ITERATION = f"/runs/{RUN}/iterations/1"


def test_each_figure_of_a_run_s_audits_names_its_oracle_and_what_was_audited(store: Store, tmp_path: Path) -> None:
    fill_run(store, "demo", per_level=2)
    drawn = draw_sample(store, "demo", 1, "human", 30)
    with store.write() as session:
        exact_labels = queries.questions.oracle_labels_of(session, "demo", 1, "exact")
        exact = {row.question_id: row.verdict for row in exact_labels}
        agreeing = [OracleLabel(row.question_id, "human", exact[row.question_id], None) for row in drawn]
        queries.questions.add_oracle_labels(session, agreeing)
    audits = get(api_of(store, tmp_path), "/runs/demo/audits")
    frames = {(row["oracle"], row["iteration"], row["over"]): row["frame"] for row in audits["measured"]}
    assert (frames["human", 1, "all"], frames["exact", 1, "all"]) == ("sample", "all")
    [sampled] = [row for row in audits["measured"] if (row["oracle"], row["over"]) == ("human", "all")]
    assert sampled["figure"]["n"] == 30 < sampled["population"]
    assert {(row["oracle"], row["frame"]) for row in audits["estimated"]} == {("human", None)}
    assert {row["iteration"] for row in audits["estimated"]}.isdisjoint({1})
    [check] = [row for row in audits["checks"] if (row["oracle"], row["over"]) == ("exact", "all")]
    errors = [fold["estimated"]["value"] - fold["measured"]["value"] for fold in check["folds"]]
    assert check["error"] == pytest.approx(sum(abs(error) for error in errors) / len(errors))
    assert check.keys() == {"oracle", "over", "error", "covered", "folds"}
    assert len(errors) == len({row["iteration"] for row in audits["measured"]})
    [agreed] = audits["oracles"]
    assert (agreed["first"], agreed["second"], agreed["kappa"]["value"]) == ("exact", "human", 1.0)
    assert audits["annotators"] == []


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
    api = api_of(store, tmp_path)

    def annotate_by(session: Session, name: str) -> None:
        row = AnnotationRow(question_id("demo", 1, 0), name, "right", "", datetime.now(UTC))
        queries.audits.add_annotation(session, row)

    def grade(session: Session) -> None:
        queries.questions.add_oracle_labels(session, [OracleLabel(drawn.question_id, "judge", "right", None)])

    def add_a_label(session: Session) -> None:
        key = question_id("demo", 1, 900)
        queries.questions.add_questions(session, [Question(key, "demo", 1, 900, "1 + 2?", "?", "demo/base/0", 0)])
        vote = PseudoLabel("3", 6, 10, 9, 1, 0.6, "all", (("3", 6), ("4", 2)))
        queries.questions.add_labels(session, [LabelledQuestion(key, "1 + 2?", vote, "kept")])

    answers = [get(api, "/runs/demo/audits")]
    [drawn] = draw_sample(store, "demo", 1, "judge", 1)
    answers.append(get(api, "/runs/demo/audits"))
    assert len(computed) == 2
    for add in (partial(annotate_by, name="ann"), partial(annotate_by, name="bob"), grade, add_a_label):
        assert get(api, "/runs/demo/audits") == answers[-1]
        with store.write() as session:
            add(session)
        before = len(computed)
        answers.append(get(api, "/runs/demo/audits"))
        assert len(computed) == before + 1
    assert [len(answers[i]["annotators"]) for i in (2, 3)] == [0, 1]
    assert "judge" in {row["oracle"] for row in answers[4]["measured"]}
    assert answers[5] != answers[4]


def test_a_sample_can_be_drawn_and_extended(api: TestClient, store: Store) -> None:
    empty = get(api, f"{ITERATION}/samples/human")
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
    done = get(api, f"{ITERATION}/samples/human")
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
    assert draw(api, LARGEST_SAMPLE + 1, status=422)["errors"][0]["field"] == "body.size"
    later = post(api, f"/runs/{RUN}/iterations/2/samples", 409, oracle="human", size=5)
    assert "iteration 2" in later["detail"]
    post(api, "/runs/nobody/iterations/1/samples", 404, oracle="human", size=5)
    with pytest.raises(AuditError, match="exact"):
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
    assert get(api, f"/runs/{RUN}/agreement") == {"oracles": [], "annotators": []}
    draw(api, 4)
    for index, ann, bob in ((0, "right", "right"), (1, "wrong", "wrong"), (2, "right", "right"), (4, "right", "wrong")):
        annotate(api, index, "ann", ann)
        annotate(api, index, "bob", bob)
    agreement = get(api, f"/runs/{RUN}/agreement")
    [oracles], [annotators] = agreement["oracles"], agreement["annotators"]
    # ann and bob agree on 3 of 4; by chance they would agree on 3/4 * 1/2 + 1/4 * 1/2 = 1/2.
    assert (annotators["first"], annotators["second"]) == ("ann", "bob")
    assert (annotators["kappa"]["value"], annotators["kappa"]["n"]) == (pytest.approx(0.5), 4)
    # The settled labels, 0 right, 1 wrong and 2 right, are those of the exact oracle.
    assert (oracles["first"], oracles["second"], oracles["kappa"]["n"]) == ("exact", "human", 3)
    assert (oracles["kappa"]["value"], oracles["kappa"]["hi"]) == (1, 1)
    assert oracles["kappa"]["lo"] < 0.5
