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


def by(kinds: list[Method]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("method", kinds, ids=lambda method: method.type)


@by(VOTED)
def test_the_groups_own_majority_earns_one(method: Method) -> None:
    # 7 has three votes of six, however it is spelled; nobody asks what the label of the question was.
    scored = method.score(group_of(["7", "8", "7.0", None, "7", "9"], label="8"))
    assert (scored.label, scored.learn) == ("7", True)
    assert scored.rewards.tolist() == [1, 0, 1, 0, 1, 0]


@by(VOTED)
def test_a_tie_goes_to_the_smallest_key_and_not_to_the_first(method: Method) -> None:
    assert method.score(group_of(["9", "9", "3", "3"])).rewards.tolist() == [0, 0, 1, 1]
    assert method.score(group_of(["3", "9", "9", "3"])).rewards.tolist() == [1, 0, 0, 1]


@by(VOTED)
def test_all_agree_all_differ_and_one_alone(method: Method) -> None:
    assert method.score(group_of(["4", "4", "4"])).rewards.tolist() == [1, 1, 1]
    assert method.score(group_of(["6", "5", "4"])).rewards.tolist() == [0, 0, 1]
    assert method.score(group_of([None, "4", None])).rewards.tolist() == [0, 1, 0]


@by(VOTED)
def test_a_prompt_that_nobody_answered_is_dropped(method: Method) -> None:
    scored = method.score(group_of([None, None]))
    assert (scored.label, scored.learn) == (None, False)
    assert scored.rewards.tolist() == [0, 0]


@by(GIVEN)
def test_the_label_that_came_earns_one_against_any_majority(method: Method) -> None:
    scored = method.score(group_of(["7", "7", "8.0", None], label="8"))
    assert (scored.label, scored.learn) == ("8", True)
    assert scored.rewards.tolist() == [0, 0, 1, 0]
    assert method.score(group_of([None, "1"], label="8")).rewards.tolist() == [0, 0]


@by(GIVEN)
def test_without_a_label_they_say_what_is_missing(method: Method) -> None:
    assert "label" in method.needs
    with pytest.raises(ValueError, match="label: this method learns from labels that come with the questions"):
        method.score(group_of(["7"]))


@by(VOTED + GIVEN)
@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_they_are_zero_or_one_and_follow_a_permutation(method: Method, group: Group, random: Random) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored = method.score(group)
    assert set(scored.rewards) <= {0, 1}
    assert scored.rewards.sum() == (group.vote.votes if method.labels == "online" else sum(group.agrees or ()))
    again = method.score(permuted(group, order))
    assert again.rewards.tolist() == scored.rewards[order].tolist()
    assert again.label == scored.label
