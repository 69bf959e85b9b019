"""The Challenger's rewards, from which a preset's `[challenger.reward]` chooses. Each paper is one file.

Such a file has the paper's settings with its numbers as defaults, what its reward needs to know besides the votes, and
its equation in the docstring. Each class of the file that has a `type` is a reward; there is no list to add it to. A
package that is installed beside coevo can have such files too: it names them as entry points of the group `GROUP`
(docs/extending.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from core.challenger.base import Asked, ChallengerReward
from core.challenger.rzero import RZeroChallenger
from core.validation.kinds import kinds_of, modules_of

GROUP = "coevo.challengers"
CHALLENGER_REWARDS = kinds_of(modules_of(__name__, __path__, GROUP), ChallengerReward)

if TYPE_CHECKING:
    AnyChallengerReward = ChallengerReward
else:
    AnyChallengerReward = Annotated[Union[tuple(CHALLENGER_REWARDS.values())], Field(discriminator="type")]  # noqa: UP007

__all__ = ["CHALLENGER_REWARDS", "AnyChallengerReward", "Asked", "ChallengerReward", "RZeroChallenger"]
