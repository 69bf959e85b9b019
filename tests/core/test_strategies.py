from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.rollouts.strategies import (
    answer_clusters,
    count_strategies,
    judge_messages,
    parse_clusters,
    skeleton_clusters,
    skeleton_of,
)
from core.types import DEGENERATE


def reply(*ids: object) -> str:
    return json.dumps({str(i): {"chain_of_thought": "Macro: m.", "cluster_id": c} for i, c in enumerate(ids, 1)})


def test_the_judge_s_prompt_is_the_paper_s() -> None:
    [message] = judge_messages("What is 2 + 2?", ["It is 4.", "Four {n}."])
    text = message["content"]
    assert message["role"] == "user"
    assert text.startswith("Your ONLY task is to cluster the 2 responses into buckets")
    assert 'must contain exactly 2 keys: "1", "2", ..., "2"' in text
    assert text.endswith("**Context:** What is 2 + 2?\n**Responses:**\n1. It is 4.\n2. Four {n}.")


def test_the_paper_s_own_examples_can_be_parsed() -> None:
    text = judge_messages("", [""])[0]["content"]
    replies = re.findall(r"\*\*Expected Output:\*\*\n(\{.*\})\n", text)
    assert [parse_clusters(example, n) for example, n in zip(replies, (7, 4), strict=True)] == [
        (1, 2, 1, 3, 1, DEGENERATE, DEGENERATE),
        (1, 1, 2, DEGENERATE),
    ]


def test_a_long_response_is_cut_off_in_the_prompt() -> None:
    assert "x" * 10 + "\n2. y" in judge_messages("q", ["x" * 99, "y"], max_chars=10)[0]["content"]


def test_keys_may_come_in_any_order_and_in_a_fence() -> None:
    swapped = json.dumps({"2": {"cluster_id": 2}, "1": {"cluster_id": 1}})
    assert parse_clusters(swapped, 2) == (1, 2)
    assert parse_clusters(f"```json\n{swapped}\n```\n", 2) == (1, 2)
    assert parse_clusters(f" {reply(1, 100)} ", 2) == (1, DEGENERATE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Here you are: " + reply(1, 2),
        reply(1),  # a response is missing
        reply(1, 2, 3),  # a response too many
        reply(1, 3),  # the cluster 3 of two responses
        reply(1, 0),
        reply(1, "2"),
        reply(1, 2.0),
        reply(1, True),
        reply(1, None),
        '{"1": 1, "2": 2}',
        '[{"cluster_id": 1}, {"cluster_id": 2}]',
        '{"1": {"cluster_id": 1}, "1": {"cluster_id": 2}, "2": {"cluster_id": 2}}',
        '{"1": {"cluster_id": 1}, "2": {"cluster_id": ' + "9" * 5000 + "}}",
        "[" * 100_000,
    ],
)
def test_any_other_reply_gives_no_clusters(text: str) -> None:
    assert parse_clusters(text, 2) is None


CLUSTERS = st.dictionaries(st.integers(0, 6).map(str), st.fixed_dictionaries({"cluster_id": st.integers(0, 6)}))


@given(st.text() | CLUSTERS.map(json.dumps), st.integers(1, 5))
@example('{"1": {"cluster_id": 3}, "2": {"cluster_id": 3}}', 2)
def test_a_reply_gives_every_rollout_a_cluster_or_none(text: str, n: int) -> None:
    clusters = parse_clusters(text, n)
    assert clusters is None or len(clusters) == n


def test_a_skeleton_has_no_numbers_and_no_answer() -> None:
    assert skeleton_of("12 * 3 = 36\n36 + 1 =  37\n\\boxed{37}") == "# * # = # # + # = #"
    assert skeleton_of("Half of 1,000.5 is \\boxed {500}") == "half of # is"
    assert skeleton_of(r"\boxed{1} no, \boxed{2}") == r"\boxed{#} no,"
    assert skeleton_of("no box") == "no box"


def test_equal_skeletons_share_a_cluster_and_a_response_without_reasoning_is_degenerate() -> None:
    responses = [r"1 + 2 = 3 \boxed{3}", r"\boxed{3}", r"9 + 9 = 7 \boxed{3}", r"1 - 2 = 3 \boxed{3}", ""]
    assert skeleton_clusters(responses) == (1, DEGENERATE, 1, 2, DEGENERATE)


def test_the_hundredth_cluster_does_not_get_the_number_of_the_degenerate_one() -> None:
    for clusters in (skeleton_clusters(["a" * (i + 1) for i in range(150)]), answer_clusters(range(150))):
        assert len({*clusters, DEGENERATE}) == 151


def test_strategies_by_final_answer_are_the_classes_of_answers_and_a_response_without_one_is_not_counted() -> None:
    assert answer_clusters((0, 1, 0, None, 2)) == (1, 2, 1, DEGENERATE, 3)
    assert count_strategies((1, 2, 1, DEGENERATE)) == 2
    assert count_strategies((DEGENERATE, DEGENERATE)) == count_strategies(()) == 0
