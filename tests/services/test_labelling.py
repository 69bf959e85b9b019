"""Labelling by people: what they are shown, when a label is settled, and when the drift rules are tested."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient
from labelling_requests import ITERATION, LABELLING, annotate, draw, next_question, samples_drawn

from core.types import OracleLabel, OracleVerdict, question_id
from services.api.access.keys import new_key
from services.api.app import PREFIX, create_app
from services.oracles.human import settled
from storage import queries
from storage.errors import StoreError
from storage.session import Store


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    fill(store)
    return TestClient(create_app(store, tmp_path, ask_for_keys=False), base_url="http://localhost")


@pytest.mark.parametrize(
    ("verdicts", "needed", "expected"),
    [
        ((), 2, None),
        (("right",), 2, None),
        (("right", "right"), 2, "right"),
        (("right", "wrong"), 2, None),
        (("right", "wrong", "wrong"), 2, "wrong"),
        (("right", "wrong", "ill_posed"), 2, None),
        (("right", "wrong", "ill_posed", "right"), 2, None),  # two of four verdicts are no majority
        (("right", "wrong", "ill_posed", "right", "right"), 2, "right"),
        (("unknown", "unknown", "unknown"), 2, None),
        (("unknown", "wrong", "unknown", "wrong"), 2, "wrong"),
        (("wrong",), 1, "wrong"),
        (("wrong", "wrong"), 3, None),
    ],
)
def test_a_label_is_settled_by_a_majority_of_enough_equal_verdicts(
    verdicts: tuple[OracleVerdict, ...], needed: int, expected: OracleVerdict | None
) -> None:
    assert settled(verdicts, needed) == expected


def test_an_annotator_is_shown_the_question_and_no_verdict_of_others(api: TestClient, store: Store) -> None:
    draw(api, 4)
    with store.write() as session:
        keys = [question_id(RUN, 1, index) for index in (0, 1, 2, 4)]
        queries.questions.add_oracle_labels(session, [OracleLabel(key, "judge", "wrong", "secret") for key in keys])
    for name in ("ann", "bob"):
        index = next_question(api, name)["question"]["index"]
        annotate(api, index, name, "right" if name == "ann" else "wrong", note="secret")
    shown = next_question(api, "carol")
    assert shown["question"] == {
        "id": question_id(RUN, 1, shown["question"]["index"]),
        "index": shown["question"]["index"],
        "text": ("What is 1 + 2?", "What is 3 + 4?", "What is 5 * 6?", "", "What is <b>7</b> of 8?")[
            shown["question"]["index"]
        ],
        "label": "3",
        "answers": ["3", "4"],
    }
    assert shown["progress"] == {"drawn": 4, "settled": 0, "annotated": 0, "skipped": 0}
    assert "secret" not in json.dumps(shown)


def test_two_equal_verdicts_settle_a_label_and_a_third_person_decides_a_dispute(api: TestClient, store: Store) -> None:
    draw(api, 3)
    order = [_index(row.question_id) for row in samples_drawn(store)]
    first, second, third = order
    assert [next_question(api, "ann")["question"]["index"]] == [first]
    after = annotate(api, first, "ann", "right")
    assert (after["annotator"], after["question"]["index"], after["progress"]["annotated"]) == ("ann", second, 1)
    assert annotate(api, first, "bob", "right")["progress"] == {"drawn": 3, "settled": 1, "annotated": 1, "skipped": 0}
    assert next_question(api, "carol")["question"]["index"] == second  # the first is settled
    annotate(api, second, "ann", "wrong")
    annotate(api, second, "bob", "ill_posed")
    annotate(api, third, "ann", "unknown")
    assert annotate(api, third, "bob", "unknown")["question"] is None
    assert _human(store) == {first: "right"}
    assert annotate(api, second, "carol", "wrong")["progress"] == {
        "drawn": 3,
        "settled": 2,
        "annotated": 1,
        "skipped": 0,
    }
    assert annotate(api, third, "carol", "unknown")["progress"]["skipped"] == 1
    annotate(api, first, "carol", "wrong")  # it is stored and changes nothing
    assert _human(store) == {first: "right", second: "wrong"}
    with store.read() as session:  # the figure exists as soon as there is a label
        every = queries.series.series_of(session, RUN, "label_accuracy", over="all", oracle="human")
    assert [(point.iteration, point.n, point.estimated) for point in every] == [(1, 2, False)]


def test_an_annotation_is_accepted_once_and_only_for_a_question_of_the_sample(api: TestClient, store: Store) -> None:
    draw(api, 2)
    inside = _index(samples_drawn(store)[0].question_id)
    outside = next(
        i for i in (0, 1, 2, 4) if question_id(RUN, 1, i) not in {row.question_id for row in samples_drawn(store)}
    )
    annotate(api, inside, "ann", "right")
    assert "'ann' has annotated it already" in annotate(api, inside, "ann", "wrong", status=409)["detail"]
    assert "it is not in the sample of human" in annotate(api, outside, "ann", "right", status=404)["detail"]
    assert "it is not in the sample" in annotate(api, 99, "ann", "right", status=404)["detail"]
    assert annotate(api, inside, "bob", "nice", status=422)["errors"][0]["field"] == "body.verdict"
    assert annotate(api, inside, "bob", "right", status=422, note="\x00")["errors"][0]["field"] == "body.note"
    assert annotate(api, inside, "bob", "right", status=422, votes=3)["errors"][0]["field"] == "body.votes"
    lone_surrogate = api.post(
        f"{LABELLING}/{inside}",
        content='{"annotator": "bob", "verdict": "right", "note": "\\ud800"}',
        headers={"Content-Type": "application/json"},
    )
    assert lone_surrogate.status_code == 422
    without_name = api.post(f"{LABELLING}/{inside}", json={"verdict": "right"})
    assert (without_name.status_code, without_name.json()["errors"][0]["field"]) == (422, "body.annotator")
    assert api.get(f"{LABELLING}/next").json()["errors"][0]["field"] == "query.annotator"
    assert api.get(f"{PREFIX}/runs/nobody/iterations/1/labelling/next?annotator=ann").status_code == 404
    foreign = api.post(
        f"{LABELLING}/{inside}", json={"annotator": "x", "verdict": "right"}, headers={"Origin": "http://evil.example"}
    )
    assert foreign.status_code == 403
    assert _human(store) == {}


def test_two_simultaneous_annotations_settle_a_label(api: TestClient, store: Store) -> None:
    """The second transaction sees the first, whichever that is, and writes the label."""
    draw(api, 4)
    for index in (_index(row.question_id) for row in samples_drawn(store)):
        together, codes = threading.Barrier(2, timeout=30), []

        def post_verdict(name: str, index: int = index, together: Any = together, codes: Any = codes) -> None:
            together.wait()
            codes.append(api.post(f"{LABELLING}/{index}", json={"annotator": name, "verdict": "ill_posed"}).status_code)

        threads = [threading.Thread(target=post_verdict, args=(name,)) for name in ("ann", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert codes == [201, 201]
    assert set(_human(store).values()) == {"ill_posed"}
    assert len(_human(store)) == 4


def test_with_keys_the_annotator_is_the_key_s_name(store: Store, tmp_path: Path) -> None:
    fill(store)
    api = TestClient(create_app(store, tmp_path, ask_for_keys=True))
    keys = {name: {"Authorization": f"Bearer {new_key(store, name, ('label',))}"} for name in ("ann", "bob")}
    api.headers = keys["ann"]
    draw(api, 4)
    index = next_question(api, "bob")["question"]["index"]
    assert annotate(api, index, "somebody else", "right")["annotator"] == "ann"
    annotate(api, index, "bob", "right", status=409)
    assert _human(store) == {}
    api.headers = keys["bob"]
    assert api.post(f"{LABELLING}/{index}", json={"verdict": "right"}).json()["annotator"] == "bob"
    assert _human(store) == {index: "right"}
    api.headers = {"Authorization": f"Bearer {new_key(store, 'reader', ('read',))}"}
    annotate(api, index, "x", "right", status=403)
    assert api.get(f"{LABELLING}/next").status_code == 403
    assert api.get(f"{ITERATION}/samples/human").status_code == 200


def test_a_key_with_a_name_like_that_of_a_home_labels_as_itself_only(store: Store, tmp_path: Path) -> None:
    """Otherwise this one key could be two annotators, whose agreement settles a label."""
    fill(store)
    key, name = "coevo_of-an-earlier-version", "home-12345678"
    with store.write() as session:
        sha256 = hashlib.sha256(key.encode()).hexdigest()
        queries.keys.add_key(session, name=name, sha256=sha256, scopes=["read", "label"])
    api = TestClient(create_app(store, tmp_path, ask_for_keys=True), headers={"Authorization": f"Bearer {key}"})
    draw(api, 4)
    index = next_question(api, "ann")["question"]["index"]
    assert annotate(api, index, "ann", "right")["annotator"] == name
    annotate(api, index, "bob", "right", status=409)
    assert _human(store) == {}
    for chosen in ("home-12345678", "home-office", "HOME-office"):
        with pytest.raises(StoreError):
            new_key(store, chosen, ("label",))


def _human(store: Store) -> dict[int, str]:
    with store.read() as session:
        return {
            _index(row.question_id): row.verdict for row in queries.questions.oracle_labels_of(session, RUN, 1, "human")
        }


def _index(key: str) -> int:
    return int(key.rsplit("/", 1)[1])


@pytest.fixture
def tested_iterations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The runs and iterations for which the drift rules were tested, in order."""
    tested: list[tuple[str, int]] = []
    monkeypatch.setattr("services.api.routes.labelling.raise_alerts", lambda _session, run, t: tested.append((run, t)))
    return tested


def test_the_rules_are_tested_once_when_all_have_finished_though_labels_stay_disputed(
    api: TestClient, tested_iterations: list[tuple[str, int]]
) -> None:
    draw(api, 2)
    verdicts = {"ann": "right", "bob": "wrong"}
    for name, verdict in verdicts.items():
        assert tested_iterations == []  # not while somebody has questions left
        while (question := next_question(api, name)["question"]) is not None:
            annotate(api, question["index"], name, verdict if question["index"] % 2 else "right")
    assert tested_iterations == [(RUN, 1)]


def test_an_annotator_who_stopped_early_does_not_delay_the_rules(
    api: TestClient, store: Store, tested_iterations: list[tuple[str, int]]
) -> None:
    draw(api, 3)
    first, second, third = (_index(row.question_id) for row in samples_drawn(store))
    annotate(api, second, "carol", "right")  # carol annotates nothing else
    for name, verdicts in {"ann": ("right", "right", "right"), "bob": ("right", "right", "wrong")}.items():
        for index, verdict in zip((first, second, third), verdicts, strict=True):
            assert tested_iterations == []
            annotate(api, index, name, verdict)
    assert (_human(store), tested_iterations) == ({first: "right", second: "right"}, [(RUN, 1)])


def test_the_rules_are_tested_again_when_a_later_annotation_changes_the_figures(
    api: TestClient, store: Store, tested_iterations: list[tuple[str, int]]
) -> None:
    draw(api, 2)
    first, second = (_index(row.question_id) for row in samples_drawn(store))
    for name, verdict in (("ann", "right"), ("bob", "wrong")):
        annotate(api, first, name, verdict)
        annotate(api, second, name, "right")
    assert tested_iterations == [(RUN, 1)]
    annotate(api, second, "dave", "wrong")  # the label is settled already
    annotate(api, first, "dave", "ill_posed")  # the label stays disputed
    assert tested_iterations == [(RUN, 1)]
    annotate(api, first, "carol", "right")  # two of four verdicts are no majority
    assert tested_iterations == [(RUN, 1)]
    annotate(api, first, "erin", "right")
    assert (_human(store)[first], tested_iterations) == ("right", [(RUN, 1)] * 2)


def test_skipped_questions_complete_a_sample_and_settle_no_label(
    api: TestClient, store: Store, tested_iterations: list[tuple[str, int]]
) -> None:
    draw(api, 2)
    first, second = (_index(row.question_id) for row in samples_drawn(store))
    for name, verdict in (("ann", "right"), ("bob", "unknown")):
        annotate(api, second, name, "unknown")
        annotate(api, first, name, verdict)
    assert (_human(store), tested_iterations) == ({}, [(RUN, 1)])
    annotate(api, first, "carol", "right")
    assert (_human(store), tested_iterations) == ({first: "right"}, [(RUN, 1)] * 2)


def test_the_rules_are_tested_again_when_an_extended_sample_is_completed(
    api: TestClient, store: Store, tested_iterations: list[tuple[str, int]]
) -> None:
    draw(api, 1)
    [first] = (_index(row.question_id) for row in samples_drawn(store))
    annotate(api, first, "ann", "right")
    annotate(api, first, "bob", "right")
    draw(api, 2)
    second = _index(samples_drawn(store)[1].question_id)
    annotate(api, second, "ann", "right")
    assert tested_iterations == [(RUN, 1)]
    annotate(api, second, "bob", "right")
    assert tested_iterations == [(RUN, 1)] * 2
