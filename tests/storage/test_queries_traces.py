"""Clusters of questions, and the checkpoints that learned from them."""

from __future__ import annotations

from store_examples import checkpoint, fresh_run, question

from core.types import question_id
from storage import queries
from storage.rows import ClusterRow, TrainedOnRow
from storage.session import Store


def test_the_largest_clusters_are_listed_with_their_first_question(store: Store) -> None:
    run = fresh_run(store)
    texts = ["a", "b", "b too", None, "c"]
    keys = [question_id(run, 1, index) for index in range(5)]
    rows = [(keys[0], 2, 1), (keys[1], 0, 2), (keys[2], 0, 2), (keys[4], 1, 1)]
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, index, text) for index, text in enumerate(texts)])
        for _ in range(2):  # adding the same rows again changes nothing
            queries.traces.add_clusters(
                session, [ClusterRow(key, run, 1, cluster, size) for key, cluster, size in rows]
            )
    with store.read() as session:
        assert queries.traces.largest_clusters(session, run, 1, 2) == [(0, 2, "b"), (1, 1, "c")]
        assert queries.traces.largest_clusters(session, run, 2, 2) == []
        row = queries.traces.cluster_of(session, keys[2])
        assert (row and (row.cluster, row.size), queries.traces.cluster_of(session, keys[3])) == ((0, 2), None)


def test_the_checkpoints_that_trained_on_a_question_are_listed_in_order(store: Store) -> None:
    run = fresh_run(store)
    checkpoints = [checkpoint(run, "solver", t, f"{run}/base/0") for t in (1, 2)]
    rows = [
        TrainedOnRow(question_id(run, 1, 0), checkpoints[1].id, [1]),
        TrainedOnRow(question_id(run, 1, 0), checkpoints[0].id, [3, 7]),
    ]
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, 0), question(run, 1)])
        for trained in checkpoints:
            queries.checkpoints.add_checkpoint(session, trained, {})
        queries.traces.add_trained_on(session, rows)
    with store.read() as session:
        assert queries.traces.trained_on_of(session, question_id(run, 1, 0)) == [rows[1], rows[0]]
        assert queries.traces.trained_on_of(session, question_id(run, 1, 1)) == []


def test_questions_can_be_filtered_by_cluster(store: Store) -> None:
    run = fresh_run(store)
    keys = [question_id(run, 1, index) for index in range(3)]
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, index) for index in range(3)])
        queries.traces.add_clusters(
            session, [ClusterRow(key, run, 1, cluster, 1) for key, cluster in zip(keys, (0, 1, 0), strict=True)]
        )
    with store.read() as session:
        entries = queries.browse.list_questions(session, run, 1, queries.browse.QuestionFilter(cluster=0))
        assert [entry.index for entry in entries] == [0, 2]
        assert queries.browse.list_questions(session, run, 1, queries.browse.QuestionFilter(cluster=2)) == []
