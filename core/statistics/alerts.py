"""Which figures of an iteration are tested for a change, and which changes raise an alert: a preset's `[alerts]`.
`core.statistics.changes` has the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from core.figures import RULES, Rule
from core.validation.bounds import Positive, SettingsTable

# The name of a figure that has a rule.
if TYPE_CHECKING:
    Tested = str
else:
    Tested = Literal[tuple(RULES)]


class Alerts(SettingsTable):
    """When a change of a figure raises an alert, in addition to the guard's signals.

    Of the runs in which nothing changes, at most the share `rate` get any alert from these rules within `iterations`
    iterations. The rate is divided among the rules by weight. The part of a rule is divided among the series that it
    tests (one for each oracle, and that of the labels made in training), and the part of a series between the test
    against the window and the CUSUM. A longer run has the same chance again for each further `iterations`.
    """

    rate: float = Field(0.05, gt=0, lt=1)
    figures: tuple[Tested, ...] = tuple(name for name, rule in RULES.items() if rule.usual)  # those that are tested
    min_n: Positive = 100  # needed both in the iteration and in those it is compared with, or nothing is tested

    iterations: ClassVar[int] = 10  # for which the rate holds; R-Zero's runs have three to five
    window: ClassVar[int] = 5  # previous iterations that an iteration is compared with, or as many as there are
    # Of a rule's rate, that the CUSUM gets. With the rest, `sudden` finds 90% of falls of ten points (docs/alerts.md).
    slow_share: ClassVar[float] = 0.1
    slow_k: ClassVar[float] = 0.5  # standard errors that it ignores: as usual half of the drift sought, one
    # SRT 4.1.1: the rise of the pseudo-reward and the KL, in nats per token, with which a fall of accuracy is a
    # collapse. They are those of the guard's signal `hacking`.
    collapse_jump: ClassVar[float] = 0.05
    collapse_kl: ClassVar[float] = 0.15

    @property
    def rules(self) -> dict[str, Rule]:
        """The rules of the figures that are tested."""
        return {name: RULES[name] for name in self.figures}
