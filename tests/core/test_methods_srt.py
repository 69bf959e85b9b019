"""SRT's soft reward by hand, from the released code (verl/workers/reward_manager/self_learning.py)."""

from __future__ import annotations

from reward_groups import group_of

from core.methods.srt import SoftSrt


def test_an_answer_earns_its_share_of_the_votes() -> None:
    # Two of three answers are 7: the fourth rollout has no answer and does not count.
    scored = SoftSrt().score(group_of(["7", "7.0", "8", None]))
    assert scored.rewards.tolist() == [2 / 3, 2 / 3, 1 / 3, 0]
    assert (scored.label, scored.learn) == ("7", True)


def test_a_prompt_that_nobody_answered_is_dropped() -> None:
    scored = SoftSrt().score(group_of([None, None]))
    assert (scored.rewards.tolist(), scored.label, scored.learn) == ([0, 0], None, False)
