"""The figures of a run: what each is called, its unit, what it is, what its n counts, and the rule that watches it.

Nothing else describes a figure. REST, Prometheus, Grafana, dashboard, pictures, the command line, the drift rules and
docs/alerts.md read it here. `services/drift/series.py` computes the figures and stores them as series.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from core.types import Role
from core.validation.suggestions import no_such

# The Solver's pass@1 on the benchmark: HELD_OUT where the run trains on other questions, TEST_TIME where it trains on
# those very questions. A run has one of the two.
HELD_OUT, TEST_TIME = "held_out", "test_time"
ACCURACY = (HELD_OUT, TEST_TIME)
# The accuracy of the labels that the Solver learns from. LABELS: of those that were made before its training, by slice.
# TRAINING_LABELS: of those that its method makes while it trains.
LABELS, TRAINING_LABELS = "label_accuracy", "training_label_accuracy"
# The share of the training's prompts that got a label, and the share of SCRL's negative labels that are wrong answers.
LABELLED_SHARE, NEGATIVE_LABEL_ACCURACY = "training_labelled_share", "negative_label_accuracy"
# How far the votes' agreement is above label accuracy; what the rollouts are that disagree with a label; and the
# difficulty of the Challenger's questions, and of the benchmark's that the Solver can answer.
OVERCONFIDENCE, DISAGREEING_WRONG = "overconfidence", "disagreeing_wrong_share"
ASKED, SOLVED = "asked_difficulty", "solved_difficulty"
_STEPS = "last steps of the training"
_SHARE = re.compile(r"([a-z][a-z0-9_]*)_share")


@dataclass(frozen=True, slots=True)
class Rule:
    """A test of one figure. A change raises an alert if it is significant and at least as large as `warning`."""

    over: Literal["kept", "all", ""]  # the questions that the figure is over
    direction: Literal["down", "up", "either"]
    warning: float  # the smallest change that raises an alert, in the unit of the figure
    critical: float  # the smallest change that raises a critical alert
    weight: float = 1.0  # of the false-alarm rate, relative to the weights of the other rules
    usual: bool = True  # whether it tests where a preset does not choose the figures


class StepMetric(NamedTuple):
    """What a trainer reports at each step of a role's training."""

    role: Role
    name: str


class Figure(NamedTuple):
    """A figure of an iteration, which is stored under `name` and exposed as the metric `coevo_{stem}_{unit}`."""

    name: str
    unit: Literal["ratio", "nats", "tokens", ""]
    title: str
    text: str
    of: str  # what its n counts
    n: str = "n"  # its n is the metric `coevo_{stem}_{n}`
    metric: str = ""  # the stem of its metrics, if it is not the name without `_share`
    per: str = ""  # what the unit is per
    steps: StepMetric | None = None  # what it is made from; without an interval it is the mean of the last steps
    interval: bool = True  # False: it is a maximum, or over steps, which are not independent

    @property
    def stem(self) -> str:
        return self.metric or self.name.removesuffix("_share")

    @property
    def exposed_as(self) -> str:
        return f"coevo_{self.stem}" + (f"_{self.unit}" if self.unit else "")

    @property
    def shown_unit(self) -> str:
        """The unit beside a title: `nats per token`, for example. A share has none, since it is shown in percent."""
        return f"{'' if self.unit == 'ratio' else self.unit} {self.per and f'per {self.per}'}".strip()


def _in_steps(
    name: str,
    unit: Literal["ratio", "nats", ""],
    title: str,
    text: str,
    metric: str = "",
    *,
    role: Role = "solver",
    per: str = "",
) -> Figure:
    """A mean over the last steps of a training, which needs no other code. `metric` is the trainer's, by default of the
    same name."""
    per = "token" if unit == "nats" else per
    return Figure(name, unit, title, text, _STEPS, per=per, steps=StepMetric(role, metric or name), interval=False)


_ALL: tuple[Figure, ...] = (
    Figure(
        LABELS,
        "ratio",
        "Label accuracy",
        "Share of pseudo-labels that the oracle agrees with, from those that were audited",
        "pseudo-labels",
        n="audited",
        metric="pseudo_label_accuracy",
    ),
    Figure(
        OVERCONFIDENCE,
        "",
        "Overconfidence",
        "Mean p_hat of audited questions minus their label accuracy",
        "pseudo-labels",
        n="audited",
    ),
    Figure(
        DISAGREEING_WRONG,
        "ratio",
        "Disagreeing rollouts that are wrong",
        "Mean share of wrong ones among a question's rollouts that disagree with its pseudo-label",
        "questions",
    ),
    _in_steps("policy_entropy", "nats", "Policy entropy", "Entropy of the Solver's policy, per token", "entropy"),
    _in_steps("kl", "nats", "KL to the reference", "The Solver's divergence from its reference, per token"),
    _in_steps(
        "pseudo_reward", "", "Pseudo-reward", "Mean raw reward of the Solver, in its method's own units", "reward_mean"
    ),
    _in_steps(
        "majority_share",
        "ratio",
        "Rollouts that agree with the majority",
        "Mean share of a prompt's rollouts that agree with most",
    ),
    _in_steps(
        "undecided_share",
        "ratio",
        "Undecided rollouts",
        "Share of rollouts that the grader could not compare with the label",
    ),
    _in_steps(
        "right_prompt_share",
        "ratio",
        "Prompts with a right rollout",
        "Share of the training's prompts with at least one right rollout",
    ),
    _in_steps(
        "right_clusters",
        "",
        "Strategies of right rollouts",
        "Mean number of strategies among a training prompt's right rollouts",
        per="prompt",
    ),
    _in_steps(
        "wrong_clusters",
        "",
        "Strategies of wrong rollouts",
        "Mean number of strategies among a training prompt's wrong rollouts",
        per="prompt",
    ),
    Figure("response_length", "tokens", "Tokens per vote", "Mean length of a question's votes", "questions"),
    Figure("vote_entropy", "nats", "Entropy of the votes", "Mean entropy of a question's answer classes", "questions"),
    Figure(
        "unparsed_share",
        "ratio",
        "Votes without an answer",
        "Mean share of a question's votes without an answer",
        "questions",
    ),
    Figure(
        "ill_posed_share",
        "ratio",
        "Ill-posed questions",
        "Share of questions that the oracle calls ill-posed",
        "pseudo-labels",
        n="audited",
    ),
    Figure("duplicate_share", "ratio", "Duplicates", "Share of candidates that repeat another", "candidates"),
    Figure("p_hat", "ratio", "Mean p_hat", "Mean share of a question's votes that its pseudo-label got", "questions"),
    Figure("split_share", "ratio", "Split votes", "Share of questions with 0 < p_hat < 1", "questions"),
    Figure(
        "truncated_share",
        "ratio",
        "Votes that were cut off",
        "Mean share of a question's votes that were cut off at the token limit",
        "questions",
    ),
    Figure("kept_share", "ratio", "Kept share", "Share of candidates that were kept", "candidates"),
    Figure("malformed_share", "ratio", "Malformed questions", "Share of candidates that are malformed", "candidates"),
    Figure(
        "largest_cluster_share",
        "ratio",
        "Largest cluster",
        "Share of questions in the largest cluster of similar questions",
        "questions",
        interval=False,
    ),
    Figure(
        "skeletons",
        "",
        "Skeletons",
        "Number of the questions' different sequences of operations",
        "questions",
        interval=False,
    ),
    Figure(
        "same_skeleton_share",
        "ratio",
        "Pairs of the same skeleton",
        "Share of pairs of questions with the same sequence of operations",
        "questions",
    ),
    Figure(ASKED, "", "Difficulty of the asked", "Mean number of a question's operations", "questions"),
    Figure(
        SOLVED,
        "",
        "Difficulty of the solved",
        "Mean number of operations of the benchmark's questions that the Solver solves",
        "items",
    ),
    Figure(
        HELD_OUT,
        "ratio",
        "Held-out accuracy",
        "Held-out accuracy (pass@1) of the Solver",
        "items",
        metric="held_out_accuracy",
    ),
    Figure(
        TEST_TIME,
        "ratio",
        "Test-time accuracy",
        "Accuracy (pass@1) of a Solver on the questions that it trains on without their answers",
        "items",
        metric="test_time_accuracy",
    ),
    Figure(
        TRAINING_LABELS,
        "ratio",
        "Label accuracy in training",
        "Share of right labels among those that the Solver's method made in training",
        "questions",
        n="checked",
        steps=StepMetric("solver", "label_accuracy"),
    ),
    Figure(
        LABELLED_SHARE,
        "ratio",
        "Labelled prompts",
        "Share of the training's prompts that the Solver's method labelled",
        "questions",
        steps=StepMetric("solver", "labelled_share"),
    ),
    Figure(
        NEGATIVE_LABEL_ACCURACY,
        "ratio",
        "Accuracy of negative labels",
        "Share of wrong answers among those that the Solver's method took for wrong in training",
        "questions",
        n="checked",
        steps=StepMetric("solver", "negative_label_accuracy"),
    ),
    _in_steps(
        "positive_labels", "", "Positive labels", "Prompts of a training step that the Solver's method gave a label"
    ),
    _in_steps(
        "negative_labels", "", "Negative labels", "Answers of a training step that the Solver's method took for wrong"
    ),
    _in_steps(
        "right_entropy", "nats", "Entropy of right rollouts", "Entropy of the right rollouts in training, per token"
    ),
    _in_steps(
        "wrong_entropy", "nats", "Entropy of wrong rollouts", "Entropy of the wrong rollouts in training, per token"
    ),
    _in_steps(
        "sampler_gap",
        "nats",
        "Sampler's gap",
        "Mean difference of sampler's and trainer's log-probabilities of a token",
    ),
    _in_steps(
        "sampler_gap_max",
        "nats",
        "Sampler's largest gap",
        "Largest difference of sampler's and trainer's log-probabilities of a token",
    ),
    _in_steps("staleness", "", "Staleness of rollouts", "Steps that the sampling policy is behind"),
    _in_steps(
        "challenger_policy_entropy",
        "nats",
        "Challenger's policy entropy",
        "Entropy of the Challenger's policy, per token",
        "entropy",
        role="challenger",
    ),
    _in_steps(
        "challenger_kl",
        "nats",
        "Challenger's KL to the reference",
        "The Challenger's divergence from its reference, per token",
        "kl",
        role="challenger",
    ),
    _in_steps(
        "challenger_reward",
        "",
        "Challenger's reward",
        "Mean raw reward of the Challenger",
        "reward_mean",
        role="challenger",
    ),
)
# The signs of collapse on a run's page, in their order.
SIGNS = (
    *("policy_entropy", "kl", "pseudo_reward", "majority_share", "right_prompt_share", "right_clusters"),
    *("wrong_clusters", "response_length", "vote_entropy", "unparsed_share", "ill_posed_share", "duplicate_share"),
    *(OVERCONFIDENCE, DISAGREEING_WRONG, "split_share", ASKED, SOLVED, "skeletons", "same_skeleton_share"),
    *("largest_cluster_share", "challenger_policy_entropy"),
)
FIGURES: dict[str, Figure] = {figure.name: figure for figure in _ALL}
# Figure -> the metric of each step of the Solver's training that it is made from.
SOLVER_METRICS = {figure.name: figure.steps.name for figure in _ALL if figure.steps and figure.steps.role == "solver"}

# The drift rules, by the figure that they watch, which must have an interval. The sizes are chosen: a warning is a
# change to look into, a critical alert one that spoils the next iteration. Label accuracy gets nine tenths of the rate,
# because it is audited on hundreds of questions; the others test all.
RULES: dict[str, Rule] = {
    LABELS: Rule("kept", "down", warning=0.05, critical=0.1, weight=81),
    "ill_posed_share": Rule("all", "up", warning=0.05, critical=0.15),
    "p_hat": Rule("all", "either", warning=0.1, critical=0.25),
    "vote_entropy": Rule("all", "down", warning=0.1, critical=0.3),
    "unparsed_share": Rule("all", "up", warning=0.05, critical=0.15),
    "truncated_share": Rule("all", "up", warning=0.05, critical=0.15),
    "kept_share": Rule("all", "down", warning=0.1, critical=0.25),
    "duplicate_share": Rule("all", "up", warning=0.1, critical=0.3),
    "malformed_share": Rule("all", "up", warning=0.1, critical=0.3),
    # How many tokens matter depends on the token limit of the run, so that this one must be asked for.
    "response_length": Rule("all", "either", warning=100, critical=500, usual=False),
    # The guard's signals `unanimity` and `monotony` test these two; as alerts, they must be asked for.
    "split_share": Rule("all", "down", warning=0.1, critical=0.25, usual=False),
    "same_skeleton_share": Rule("all", "up", warning=0.1, critical=0.25, usual=False),
    HELD_OUT: Rule("", "down", warning=0.03, critical=0.1),
}
# Rule -> the figures that it tests. A rule that is not listed tests its own.
_TESTED = {HELD_OUT: ACCURACY, LABELS: (LABELS, TRAINING_LABELS)}


def figures_of_rule(rule: str) -> tuple[str, ...]:
    """The names of the figures that a rule tests."""
    return _TESTED.get(rule, (rule,))


def unknown_series(name: str, points: Sequence[object]) -> str | None:
    """The error about a name of which a run has no `points`; None if a run of this version can have the series. A newer
    version may have stored others."""
    return None if points or name in FIGURES else f"{name}: {no_such('series', sorted(FIGURES), name)}"


def figure_of(series: str) -> Figure | None:
    """The figure that is stored as a series. One that this version does not know is a share if it is named so, and
    None if its name does not tell its unit."""
    if series in FIGURES:
        return FIGURES[series]
    share = _SHARE.fullmatch(series)
    return None if share is None else Figure(series, "ratio", series, f"The series {series}", "items")


def is_share(series: str) -> bool:
    """Whether the values of a series are in 0..1, as far as its name tells it."""
    figure = figure_of(series)
    return figure is not None and figure.unit == "ratio"
