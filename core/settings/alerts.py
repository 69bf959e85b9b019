"""Which figures of an iteration are tested for a change, and which changes raise an alert: a preset's `[alerts]`.
`core.statistics.changes` has the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from core.settings.bounds import Positive, SettingsTable

# The figures that can be tested for a change, which are those with an interval.
Tested = Literal[
    "label_accuracy",
    "ill_posed_share",
    "p_hat",
    "vote_entropy",
    "unparsed_share",
    "truncated_share",
    "kept_share",
    "duplicate_share",
    "malformed_share",
    "response_length",
    "held_out",
]


@dataclass(frozen=True, slots=True)
class Rule:
    """A test of one series. A change raises an alert if it is significant and at least as large as `warning`."""

    over: Literal["kept", "all", ""]  # the questions that the series is over
    direction: Literal["down", "up", "either"]
    warning: float  # the smallest change that raises an alert, in the unit of the series
    critical: float  # the smallest change that raises a critical alert
    weight: float = 1.0  # of the false-alarm rate, relative to the weights of the other rules


# The sizes are chosen: a warning is a change to look into, a critical alert one that spoils the next iteration.
# Label accuracy gets nine tenths of the rate, because it is audited on hundreds of questions; the others test all.
RULES: dict[Tested, Rule] = {
    "label_accuracy": Rule("kept", "down", warning=0.05, critical=0.1, weight=81),
    "ill_posed_share": Rule("all", "up", warning=0.05, critical=0.15),
    "p_hat": Rule("all", "either", warning=0.1, critical=0.25),
    "vote_entropy": Rule("all", "down", warning=0.1, critical=0.3),  # nats
    "unparsed_share": Rule("all", "up", warning=0.05, critical=0.15),
    "truncated_share": Rule("all", "up", warning=0.05, critical=0.15),
    "kept_share": Rule("all", "down", warning=0.1, critical=0.25),
    "duplicate_share": Rule("all", "up", warning=0.1, critical=0.3),
    "malformed_share": Rule("all", "up", warning=0.1, critical=0.3),
    "response_length": Rule("all", "either", warning=100, critical=500),  # tokens
    "held_out": Rule("", "down", warning=0.03, critical=0.1),
}
# How many tokens matter depends on the token limit of the run, so that this one must be asked for.
_USUAL = tuple(name for name in RULES if name != "response_length")


class Alerts(SettingsTable):
    """When a change of a figure raises an alert, in addition to the guard's signals.

    Of the runs in which nothing changes, at most the share `rate` get any alert from these rules within `iterations`
    iterations. The rate is divided among the rules by weight. The part of a rule is divided among the series that it
    tests (one for each oracle, and that of the labels made in training), and the part of a series between the test
    against the window and the CUSUM. A longer run has the same chance again for each further `iterations`.
    """

    rate: float = Field(0.05, gt=0, lt=1)
    figures: tuple[Tested, ...] = _USUAL  # those that are tested
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
    def rules(self) -> dict[Tested, Rule]:
        """The rules of the figures that are tested."""
        return {name: RULES[name] for name in self.figures}
