"""Which figures of an iteration are tested for a change, and which changes raise an alert: a preset's `[alerts]`.
`core.statistics.changes` has the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from core.settings.bounds import Factor, Iterations, Part, Positive, Scale

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


class Rule(Part):
    """A test of one series. A change raises an alert if it is significant and at least as large as `warning`."""

    over: Literal["kept", "all", ""] = "all"  # the questions that the series is over
    direction: Literal["down", "up", "either"]
    warning: Factor  # the smallest change that raises an alert, in the unit of the series
    critical: Factor  # the smallest change that raises a critical alert
    weight: Scale = 1.0  # of the false-alarm rate, relative to the weights of the other rules
    enabled: bool = True

    @model_validator(mode="after")
    def _critical_is_not_below_warning(self) -> Rule:
        if self.critical < self.warning:
            raise ValueError(f"critical: expected at least warning, {self.warning:g}, got {self.critical:g}")
        return self


def _rules() -> dict[Tested, Rule]:
    # Label accuracy gets nine tenths of the rate, because it is audited on hundreds of questions; the others test all.
    return {
        "label_accuracy": Rule(over="kept", direction="down", warning=0.05, critical=0.1, weight=81),
        "ill_posed_share": Rule(direction="up", warning=0.05, critical=0.15),
        "p_hat": Rule(direction="either", warning=0.1, critical=0.25),
        "vote_entropy": Rule(direction="down", warning=0.1, critical=0.3),  # nats
        "unparsed_share": Rule(direction="up", warning=0.05, critical=0.15),
        "truncated_share": Rule(direction="up", warning=0.05, critical=0.15),
        "kept_share": Rule(direction="down", warning=0.1, critical=0.25),
        "duplicate_share": Rule(direction="up", warning=0.1, critical=0.3),
        "malformed_share": Rule(direction="up", warning=0.1, critical=0.3),
        # In tokens. Off, because how many tokens matter depends on the token limit of the run.
        "response_length": Rule(direction="either", warning=100, critical=500, enabled=False),
        "held_out": Rule(over="", direction="down", warning=0.03, critical=0.1),
    }


class Alerts(Part):
    """When a change of a figure raises an alert, in addition to the guard's signals.

    Of the runs in which nothing changes, at most the share `rate` get any alert from these rules within `iterations`
    iterations. The rate is divided among the rules by weight. The part of a rule is divided among the series that it
    tests (one for each oracle, and that of the labels made in training), and the part of a series between the test
    against the window and the CUSUM. A longer run has the same chance again for each further `iterations`.
    """

    rate: float = Field(0.05, gt=0, lt=1)
    iterations: Iterations = 10
    window: Iterations = 5  # previous iterations that an iteration is compared with, or as many as there are
    min_n: Positive = 100  # needed both in the iteration and in those it is compared with, or nothing is tested
    slow_share: float = Field(0.1, gt=0, lt=1)  # of a rule's rate, that the CUSUM gets
    slow_k: Factor = 0.5  # standard errors per iteration that the CUSUM ignores as chance
    collapse_jump: Factor = 0.05  # the rise of the pseudo-reward…
    collapse_kl: Factor = 0.15  # …and the KL, in nats per token, with which a fall of accuracy is a collapse
    rules: dict[Tested, Rule] = Field(default_factory=_rules)

    @field_validator("rules", mode="before")
    @classmethod
    def _with_defaults(cls, rules: Any) -> Any:
        """Add the default rules that are missing, and in each rule the default settings that are missing."""
        if not isinstance(rules, Mapping):
            return rules
        defaults = {name: rule.model_dump() for name, rule in _rules().items()}
        changed = {
            name: {**defaults.get(name, {}), **rule} if isinstance(rule, Mapping) else rule
            for name, rule in rules.items()
        }
        return {**defaults, **changed}
