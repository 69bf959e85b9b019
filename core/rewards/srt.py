"""SRT (Shafayat et al., arXiv 2505.21444): agreement with the majority of the current policy, or of a fixed one."""

from __future__ import annotations

from core.methods import Srt
from core.rewards.agreement import agreement_scores
from core.types import Group, Scored


def score(group: Group, method: Srt) -> Scored:
    """Rewards (G,) in {0, 1} (eq. 6). `labels="offline"` is 5.2: labels made once by a fixed checkpoint.

    The vote is among the rollouts that have an answer; a prompt with none is discarded with all its rollouts
    (section 4). The failure case is the paper's subject: one answer for every prompt earns 1 always (4.1.1).

    Deviations from the released code (tajwarfahim/srt): it votes on the text of answers and lets math-verify decide
    who agrees, so equal answers of two spellings vote apart there; its threshold on the majority's share, 0 in the
    paper, is left out; it averages the loss over tokens, where B.1 sums them.
    """
    return agreement_scores(group, method.labels)
