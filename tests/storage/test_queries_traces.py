"""Clusters of questions, and the checkpoints that learned from them."""

from __future__ import annotations

from store_examples import checkpoint, fresh_run, question

from core.types import question_id
from storage import queries
from storage.rows import ClusterRow, TrainedOnRow
from storage.session import Store


def test_the_largest_clusters_with_their_first_question(store: Store) -> None:
    run = fresh_run(store)
    texts = ["a", "b", "b too", None, "c"]
    keys = [question_id(run, 1, index) for index in range(5)]
    rows = [(keys[0], 2, 1), (keys[1], 0, 2), (keys[2], 0, 2), (keys[4], 1, 1)]
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, index, text) for index, text in enumerate(texts)])
        for _ in range(2):  # again is the same as once
            queries.traces.add_clusters(
                session, [ClusterRow(key, run, 1, cluster, size) for key, cluster, size in rows]
            )
    with store.read() as session:
        assert queries.traces.largest_clusters(session, run, 1, 2) == [(0, 2, "b"), (1, 1, "c")]
        assert queries.traces.largest_clusters(session, run, 2, 2) == []
        found = queries.traces.cluster_of(session, keys[2])
        assert (found and (found.cluster, found.size), queries.traces.cluster_of(session, keys[3])) == ((0, 2), None)


def test_where_a_question_was_trained_on(store: Store) -> None:
    run = fresh_run(store)
    trained = [checkpoint(run, "solver", t, f"{run}/base/0") for t in (1, 2)]
    rows = [
        TrainedOnRow(question_id(run, 1, 0), trained[1].id, [1]),
        TrainedOnRow(question_id(run, 1, 0), trained[0].id, [3, 7]),
    ]
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, 0), question(run, 1)])
        for each in trained:
            queries.checkpoints.add_checkpoint(session, each, {})
        queries.traces.add_trained_on(session, rows)
    with store.read() as session:
        assert queries.traces.trained_on_of(session, question_id(run, 1, 0)) == [rows[1], rows[0]]
        assert queries.traces.trained_on_of(session, question_id(run, 1, 1)) == []


def test_questions_of_a_cluster(store: Store) -> None:
    run = fresh_run(store)
    keys = [question_id(run, 1, index) for index in range(3)]
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, index) for index in range(3)])
        queries.traces.add_clusters(
            session, [ClusterRow(key, run, 1, place, 1) for key, place in zip(keys, (0, 1, 0), strict=True)]
        )
    with store.read() as session:
        found = queries.browse.list_questions(session, run, 1, queries.browse.QuestionFilter(cluster=0))
        assert [each.index for each in found] == [0, 2]
        assert queries.browse.list_questions(session, run, 1, queries.browse.QuestionFilter(cluster=2)) == []
