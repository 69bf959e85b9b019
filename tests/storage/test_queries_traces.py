"""Clusters of questions, and the checkpoints that learned from them."""

from __future__ import annotations

from store_examples import checkpoint, question, reads, writes

from core.types import question_id
from storage import queries
from storage.rows import ClusterRow, TrainedOnRow
from storage.session import Store


def test_the_largest_clusters_are_listed_with_their_first_question(store: Store, run: str) -> None:
    texts = ["a", "b", "b too", None, "c"]
    keys = [question_id(run, 1, index) for index in range(5)]
    rows = [(keys[0], 2, 1), (keys[1], 0, 2), (keys[2], 0, 2), (keys[4], 1, 1)]
    writes(store).questions.add_questions([question(run, index, text) for index, text in enumerate(texts)])
    for _ in range(2):  # adding the same rows again changes nothing
        writes(store).traces.add_clusters([ClusterRow(key, run, 1, cluster, size) for key, cluster, size in rows])
    assert reads(store).traces.largest_clusters(run, 1, 2) == [(0, 2, "b"), (1, 1, "c")]
    assert reads(store).traces.largest_clusters(run, 2, 2) == []
    row = reads(store).traces.cluster_of(keys[2])
    assert (row and (row.cluster, row.size), reads(store).traces.cluster_of(keys[3])) == ((0, 2), None)


def test_the_checkpoints_that_trained_on_a_question_are_listed_in_order(store: Store, run: str) -> None:
    checkpoints = [checkpoint(run, "solver", t, f"{run}/base/0") for t in (1, 2)]
    rows = [
        TrainedOnRow(question_id(run, 1, 0), checkpoints[1].id, [1]),
        TrainedOnRow(question_id(run, 1, 0), checkpoints[0].id, [3, 7]),
    ]
    writes(store).questions.add_questions([question(run, 0), question(run, 1)])
    for trained in checkpoints:
        writes(store).checkpoints.add_checkpoint(trained, {})
    writes(store).traces.add_trained_on(rows)
    assert reads(store).traces.trained_on_of(question_id(run, 1, 0)) == [rows[1], rows[0]]
    assert reads(store).traces.trained_on_of(question_id(run, 1, 1)) == []


def test_questions_can_be_filtered_by_cluster(store: Store, run: str) -> None:
    keys = [question_id(run, 1, index) for index in range(3)]
    writes(store).questions.add_questions([question(run, index) for index in range(3)])
    writes(store).traces.add_clusters(
        [ClusterRow(key, run, 1, cluster, 1) for key, cluster in zip(keys, (0, 1, 0), strict=True)]
    )
    entries = reads(store).browse.list_questions(run, 1, queries.browse.QuestionFilter(cluster=0))
    assert [entry.index for entry in entries] == [0, 2]
    assert reads(store).browse.list_questions(run, 1, queries.browse.QuestionFilter(cluster=2)) == []
