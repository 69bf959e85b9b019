"""Labelling by people: what they are shown, when a label is settled, and when the drift rules are tested."""

from __future__ import annotations

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
    index = shown["question"]["index"]
    text = ("What is 1 + 2?", "What is 3 + 4?", "What is 5 * 6?", "", "What is <b>7</b> of 8?")[index]
    plain = {"id": question_id(RUN, 1, index), "index": index, "text": text}
    assert shown["question"] == {**plain, "label": "3", "answers": ["3", "4"]}
    assert shown["progress"] == {"drawn": 4, "settled": 0, "annotated": 0, "skipped": 0}
    assert "secret" not in json.dumps(shown)


def test_two_equal_verdicts_settle_a_label_and_a_third_person_decides_a_dispute(api: TestClient, store: Store) -> None:
    draw(api, 3)
    first, second, third = drawn(store)
    assert next_question(api, "ann")["question"]["index"] == first
    after = annotate(api, first, "ann", "right")
    assert (after["annotator"], after["question"]["index"], after["progress"]["annotated"]) == ("ann", second, 1)
    assert annotate(api, first, "bob", "right")["progress"] == {"drawn": 3, "settled": 1, "annotated": 1, "skipped": 0}
    assert next_question(api, "carol")["question"]["index"] == second  # the first is settled
    annotate(api, second, "ann", "wrong")
    annotate(api, second, "bob", "ill_posed")
    annotate(api, third, "ann", "unknown")
    assert annotate(api, third, "bob", "unknown")["question"] is None
    assert _human(store) == {first: "right"}
    progress = annotate(api, second, "carol", "wrong")["progress"]
    assert progress == {"drawn": 3, "settled": 2, "annotated": 1, "skipped": 0}
    assert annotate(api, third, "carol", "unknown")["progress"]["skipped"] == 1
    annotate(api, first, "carol", "wrong")  # it is stored and changes nothing
    assert _human(store) == {first: "right", second: "wrong"}
    with store.read() as session:  # the figure exists as soon as there is a label
        every = queries.series.series_of(session, RUN, "label_accuracy", over="all", oracle="human")
    assert [(point.iteration, point.n, point.estimated) for point in every] == [(1, 2, False)]


def test_an_annotation_is_accepted_once_and_only_for_a_question_of_the_sample(api: TestClient, store: Store) -> None:
    draw(api, 2)
    inside = drawn(store)[0]
    [outside, *_] = {0, 1, 2, 4} - {*drawn(store)}
    annotate(api, inside, "ann", "right")
    assert "ann" in annotate(api, inside, "ann", "wrong", status=409)["detail"]
    for index in (outside, 99):
        assert "not in the sample" in annotate(api, index, "ann", "right", status=404)["detail"]
    right = {"annotator": "bob", "verdict": "right"}
    for field, body in (
        ("verdict", {**right, "verdict": "nice"}),
        ("note", {**right, "note": "\x00"}),
        ("note", {**right, "note": "\ud800"}),
        ("votes", {**right, "votes": 3}),
        ("annotator", {"verdict": "right"}),
    ):
        headers = {"Content-Type": "application/json"}
        answer = api.post(f"{LABELLING}/{inside}", content=json.dumps(body), headers=headers)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, f"body.{field}")
    assert api.get(f"{LABELLING}/next").json()["errors"][0]["field"] == "query.annotator"
    assert api.get(f"{PREFIX}/runs/nobody/iterations/1/labelling/next?annotator=ann").status_code == 404
    assert _human(store) == {}


def test_two_simultaneous_annotations_settle_a_label(api: TestClient, store: Store) -> None:
    """The second transaction sees the first, whichever that is, and writes the label."""
    draw(api, 4)
    together = threading.Barrier(2, timeout=30)

    def annotate_all(name: str) -> None:
        for index in drawn(store):
            together.wait()
            annotate(api, index, name, "ill_posed")

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(annotate_all, ("ann", "bob")))
    assert _human(store) == dict.fromkeys((0, 1, 2, 4), "ill_posed")


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


def drawn(store: Store) -> list[int]:
    """The indices of the sample's questions, in the order in which people are shown them."""
    return [_index(row.question_id) for row in samples_drawn(store)]


# Who annotates which question of the sample how, and how often the rules have been tested after that. A number instead
# draws a sample of this size, or extends it.
Step = int | tuple[str, int, OracleVerdict, int]


@pytest.mark.parametrize(
    ("steps", "settled_as"),
    [
        pytest.param(
            [2, ("ann", 0, "right", 0), ("ann", 1, "right", 0), ("bob", 0, "wrong", 0), ("bob", 1, "right", 1)],
            {1: "right"},
            id="once when all have finished, though a label stays disputed",
        ),
        pytest.param(
            [
                *(3, ("carol", 1, "right", 0)),  # carol annotates nothing else
                *(("ann", i, "right", 0) for i in range(3)),
                *(("bob", 0, "right", 0), ("bob", 1, "right", 0), ("bob", 2, "wrong", 1)),
            ],
            {0: "right", 1: "right"},
            id="also if an annotator stopped early",
        ),
        pytest.param(
            [
                *(2, ("ann", 0, "right", 0), ("ann", 1, "right", 0), ("bob", 0, "wrong", 0), ("bob", 1, "right", 1)),
                ("dave", 1, "wrong", 1),  # the label is settled already
                ("dave", 0, "ill_posed", 1),  # the label stays disputed
                ("carol", 0, "right", 1),  # two of four verdicts are no majority
                ("erin", 0, "right", 2),
            ],
            {0: "right", 1: "right"},
            id="again when a later annotation changes the figures",
        ),
        pytest.param(
            [
                *(2, ("ann", 1, "unknown", 0), ("ann", 0, "right", 0)),
                *(("bob", 1, "unknown", 0), ("bob", 0, "unknown", 1), ("carol", 0, "right", 2)),
            ],
            {0: "right"},
            id="skipped questions complete a sample and settle no label",
        ),
        pytest.param(
            [1, ("ann", 0, "right", 0), ("bob", 0, "right", 1), 2, ("ann", 1, "right", 1), ("bob", 1, "right", 2)],
            {0: "right", 1: "right"},
            id="again when an extended sample is completed",
        ),
    ],
)
def test_the_drift_rules_are_tested_when_a_sample_is_complete(
    api: TestClient,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Step],
    settled_as: dict[int, OracleVerdict],
) -> None:
    tested: list[tuple[str, int]] = []
    monkeypatch.setattr("services.api.routes.labelling.raise_alerts", lambda _session, run, t: tested.append((run, t)))
    for step in steps:
        if isinstance(step, int):
            draw(api, step)
            continue
        name, position, verdict, times = step
        annotate(api, drawn(store)[position], name, verdict)
        assert tested == [(RUN, 1)] * times, step
    assert _human(store) == {drawn(store)[position]: verdict for position, verdict in settled_as.items()}
