"""Which of an iteration's figures are tested for a change, and which changes are told of; the tests:
`core.statistics.changes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from core.settings.bounds import Factor, Iterations, Part, Positive, Scale

# What a change can be tested of: figures that come with an interval.
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
    """A test of one series. A change is told of when it cannot be chance and is as large as `warning`."""

    over: Literal["kept", "all", ""] = "all"  # as the series has it
    direction: Literal["down", "up", "either"]
    warning: Factor  # the smallest change worth one, in the series' own unit
    critical: Factor
    weight: Scale = 1.0  # of the false-alarm rate, beside the other rules'
    enabled: bool = True

    @model_validator(mode="after")
    def _in_order(self) -> Rule:
        if self.critical < self.warning:
            raise ValueError(f"critical: expected at least warning, {self.warning:g}, got {self.critical:g}")
        return self


def _rules() -> dict[Tested, Rule]:
    # Label accuracy has nine tenths of the rate: it is audited on hundreds, the others are over all that there is.
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
        # In tokens: how many are worth a word, only whoever set the limit knows.
        "response_length": Rule(direction="either", warning=100, critical=500, enabled=False),
        "held_out": Rule(over="", direction="down", warning=0.03, critical=0.1),
    }


class Alerts(Part):
    """When a figure's change is told of, besides the guard's signals.

    Of runs in which nothing changes, at most `rate` get any alert from these rules in `iterations` iterations: it is
    divided among the rules by weight, a rule's among the series that it tests (one for each oracle, and that of the
    labels that training made), and a series' between the test against the window and the CUSUM. A longer run has as
    much again for each `iterations` more.
    """

    rate: float = Field(0.05, gt=0, lt=1)
    iterations: Iterations = 10
    window: Iterations = 5  # iterations before, that one is compared with; fewer where there are no more
    min_n: Positive = 100  # in the iteration and in the window, or nothing is tested
    slow_share: float = Field(0.1, gt=0, lt=1)  # of a rule's rate, for the CUSUM
    slow_k: Factor = 0.5  # standard errors an iteration that the CUSUM takes for chance
    collapse_jump: Factor = 0.05  # of the pseudo-reward…
    collapse_kl: Factor = 0.15  # …and the KL, in nats a token, that make a fall a collapse
    rules: dict[Tested, Rule] = Field(default_factory=_rules)

    @field_validator("rules", mode="before")
    @classmethod
    def _with_defaults(cls, given: Any) -> Any:
        """A rule that is given in part has the rest from its default; one that is not given is the default."""
        if not isinstance(given, Mapping):
            return given
        known = {name: rule.model_dump() for name, rule in _rules().items()}
        changed = {
            name: {**known.get(name, {}), **rule} if isinstance(rule, Mapping) else rule for name, rule in given.items()
        }
        return {**known, **changed}
