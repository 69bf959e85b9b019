"""The methods whose reward is agreement with a label: R-Zero, TTRL, SRT, GRPO, RLOO, pass@n, supervised."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_groups import any_groups, group_of, permuted

from core.methods import Method
from core.methods.poly_epo import Grpo, PassAtN
from core.methods.rzero import RZero, Supervised
from core.methods.srt import Rloo, Srt
from core.methods.ttrl import Ttrl
from core.types import Group

VOTED = [Ttrl(), Srt(), Grpo(labels="online"), Rloo(labels="online"), PassAtN(labels="online")]
GIVEN = [RZero(), Srt(labels="offline"), Grpo(), Rloo(), PassAtN(), Supervised()]


def with_methods(methods: list[Method]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("method", methods, ids=lambda method: method.type)


@with_methods(VOTED)
def test_the_groups_own_majority_earns_one(method: Method) -> None:
    # 7 has three votes of six, in two spellings; the method ignores the label of the question.
    scored = method.score(group_of(["7", "8", "7.0", None, "7", "9"], label="8"))
    assert (scored.label, scored.learn) == ("7", True)
    assert scored.rewards.tolist() == [1, 0, 1, 0, 1, 0]


@with_methods(VOTED)
def test_a_tie_goes_to_the_smallest_key_and_not_to_the_first_answer(method: Method) -> None:
    assert method.score(group_of(["9", "9", "3", "3"])).rewards.tolist() == [0, 0, 1, 1]
    assert method.score(group_of(["3", "9", "9", "3"])).rewards.tolist() == [1, 0, 0, 1]


@with_methods(VOTED)
def test_rewards_where_all_agree_all_differ_and_only_one_answers(method: Method) -> None:
    assert method.score(group_of(["4", "4", "4"])).rewards.tolist() == [1, 1, 1]
    assert method.score(group_of(["6", "5", "4"])).rewards.tolist() == [0, 0, 1]
    assert method.score(group_of([None, "4", None])).rewards.tolist() == [0, 1, 0]


@with_methods(VOTED)
def test_a_prompt_that_nobody_answered_is_dropped(method: Method) -> None:
    scored = method.score(group_of([None, None]))
    assert (scored.label, scored.learn) == (None, False)
    assert scored.rewards.tolist() == [0, 0]


@with_methods(GIVEN)
def test_the_given_label_earns_one_against_any_majority(method: Method) -> None:
    scored = method.score(group_of(["7", "7", "8.0", None], label="8"))
    assert (scored.label, scored.learn) == ("8", True)
    assert scored.rewards.tolist() == [0, 0, 1, 0]
    assert method.score(group_of([None, "1"], label="8")).rewards.tolist() == [0, 0]


@with_methods(GIVEN)
def test_a_missing_label_is_named_in_the_error(method: Method) -> None:
    assert "label" in method.needs
    with pytest.raises(ValueError, match="label: this method learns from labels that come with the questions"):
        method.score(group_of(["7"]))


@with_methods(VOTED + GIVEN)
@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_rewards_are_zero_or_one_and_follow_a_permutation(method: Method, group: Group, random: Random) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored = method.score(group)
    assert set(scored.rewards) <= {0, 1}
    assert scored.rewards.sum() == (group.vote.votes if method.labels == "online" else sum(group.agrees or ()))
    again = method.score(permuted(group, order))
    assert again.rewards.tolist() == scored.rewards[order].tolist()
    assert again.label == scored.label
