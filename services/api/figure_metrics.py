"""The series of an iteration as metrics. A metric has its unit in its name, and comes with its 95% interval and n."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from core.statistics.changes import HELD_OUT, LABELLED_SHARE, NEGATIVE_LABEL_ACCURACY, TEST_TIME, TRAINING_LABELS
from core.suggestions import no_such
from storage.rows import SeriesPoint

_LABELS = ("run", "oracle", "slice")
_SHARE = re.compile(r"([a-z][a-z0-9_]*)_share")


class Figure(NamedTuple):
    """How a series is exposed: as the metric `coevo_{name}_{unit}`."""

    name: str
    unit: str  # empty: it has no unit
    text: str  # the metric's help text
    of: str  # what its n counts
    n: str = "n"  # its n is the metric `coevo_{name}_{n}`


_STEPS = "last steps of the training"
FIGURES = {
    "label_accuracy": Figure(
        "pseudo_label_accuracy",
        "ratio",
        "Share of pseudo-labels that the oracle agrees with, from those that were audited",
        "pseudo-labels",
        "audited",
    ),
    "ill_posed_share": Figure(
        "ill_posed", "ratio", "Share of questions that the oracle calls ill-posed", "pseudo-labels", "audited"
    ),
    "p_hat": Figure("p_hat", "ratio", "Mean share of a question's votes that its pseudo-label got", "questions"),
    "vote_entropy": Figure("vote_entropy", "nats", "Mean entropy of a question's answer classes", "questions"),
    "unparsed_share": Figure("unparsed", "ratio", "Mean share of a question's votes without an answer", "questions"),
    "truncated_share": Figure(
        "truncated", "ratio", "Mean share of a question's votes that were cut off at the token limit", "questions"
    ),
    "response_length": Figure("response_length", "tokens", "Mean length of a question's votes", "questions"),
    "kept_share": Figure("kept", "ratio", "Share of candidates that were kept", "candidates"),
    "duplicate_share": Figure("duplicate", "ratio", "Share of candidates that repeat another", "candidates"),
    "malformed_share": Figure("malformed", "ratio", "Share of candidates that are malformed", "candidates"),
    "largest_cluster_share": Figure(
        "largest_cluster", "ratio", "Share of questions in the largest cluster of similar questions", "questions"
    ),
    "policy_entropy": Figure("policy_entropy", "nats", "Entropy of the Solver's policy, per token", _STEPS),
    "kl": Figure("kl", "nats", "The Solver's divergence from its reference, per token", _STEPS),
    "pseudo_reward": Figure("pseudo_reward", "", "Mean raw reward of the Solver, in its method's own units", _STEPS),
    "majority_share": Figure("majority", "ratio", "Mean share of a prompt's rollouts that agree with most", _STEPS),
    "positive_labels": Figure(
        "positive_labels", "", "Prompts of a training step that the Solver's method gave a label", _STEPS
    ),
    "negative_labels": Figure(
        "negative_labels", "", "Answers of a training step that the Solver's method took for wrong", _STEPS
    ),
    "right_prompt_share": Figure(
        "right_prompt", "ratio", "Share of the training's prompts with at least one right rollout", _STEPS
    ),
    "right_clusters": Figure(
        "right_clusters", "", "Mean number of strategies among a training prompt's right rollouts", _STEPS
    ),
    "wrong_clusters": Figure(
        "wrong_clusters", "", "Mean number of strategies among a training prompt's wrong rollouts", _STEPS
    ),
    "right_entropy": Figure("right_entropy", "nats", "Entropy of the right rollouts in training, per token", _STEPS),
    "wrong_entropy": Figure("wrong_entropy", "nats", "Entropy of the wrong rollouts in training, per token", _STEPS),
    "sampler_gap": Figure(
        "sampler_gap", "nats", "Mean difference of sampler's and trainer's log-probabilities of a token", _STEPS
    ),
    "sampler_gap_max": Figure(
        "sampler_gap_max", "nats", "Largest difference of sampler's and trainer's log-probabilities of a token", _STEPS
    ),
    "challenger_policy_entropy": Figure(
        "challenger_policy_entropy", "nats", "Entropy of the Challenger's policy, per token", _STEPS
    ),
    "challenger_kl": Figure(
        "challenger_kl", "nats", "The Challenger's divergence from its reference, per token", _STEPS
    ),
    "challenger_reward": Figure("challenger_reward", "", "Mean raw reward of the Challenger", _STEPS),
    TRAINING_LABELS: Figure(
        TRAINING_LABELS,
        "ratio",
        "Share of right labels among those that the Solver's method made in training",
        "questions",
        "checked",
    ),
    LABELLED_SHARE: Figure(
        "training_labelled", "ratio", "Share of the training's prompts that the Solver's method labelled", "questions"
    ),
    NEGATIVE_LABEL_ACCURACY: Figure(
        NEGATIVE_LABEL_ACCURACY,
        "ratio",
        "Share of wrong answers among those that the Solver's method took for wrong in training",
        "questions",
        "checked",
    ),
    HELD_OUT: Figure("held_out_accuracy", "ratio", "Held-out accuracy (pass@1) of the Solver", "items"),
    TEST_TIME: Figure(
        "test_time_accuracy",
        "ratio",
        "Accuracy (pass@1) of a Solver on the questions that it trains on without their answers",
        "items",
    ),
}


def unknown_series(name: str, points: Sequence[SeriesPoint]) -> str | None:
    """The error about a name of which a run has no `points`; None if a run of this version can have the series. A newer
    version may have stored others."""
    return None if points or name in FIGURES else f"{name}: {no_such('series', sorted(FIGURES), name)}"


def figure_of(series: str) -> Figure | None:
    """How a series is exposed. None if its name does not tell its unit: then it is not exposed."""
    if series in FIGURES:
        return FIGURES[series]
    share = _SHARE.fullmatch(series)
    return None if share is None else Figure(share[1], "ratio", f"The series {series}", "items")


def is_share(series: str) -> bool:
    """Whether the values of a series are in 0..1, as far as its name tells it."""
    figure = figure_of(series)
    return figure is not None and figure.unit == "ratio"


def figures(series: Mapping[str, Sequence[SeriesPoint]]) -> Iterable[Metric]:
    """The metrics of each run's points, in order of their names.

    An estimate from p_hat has metrics of its own (`…_estimated_…`). So a rule over measured values never sees an
    estimate, and the last measured value stays.
    """
    families: dict[str, GaugeMetricFamily] = {}
    for run, points in series.items():
        for point in points:
            figure = figure_of(point.name)
            if figure is None:
                continue
            for name, text, value in _metrics(figure, point):
                if name not in families:
                    families[name] = GaugeMetricFamily(name, text, labels=_LABELS)
                families[name].add_metric((run, point.oracle, point.over), value)
    yield from (families[name] for name in sorted(families))
    yield _iterations(series)


def _metrics(figure: Figure, point: SeriesPoint) -> list[tuple[str, str, float]]:
    """(name, help, value): the figure, the ends of its interval where it has one, and its n."""
    stem = f"coevo_{figure.name}" + ("_estimated" if point.estimated else "")
    unit = f"_{figure.unit}" if figure.unit else ""
    name, n_name = f"{stem}{unit}", f"{stem}_{figure.n}"
    origin = "; estimated from p_hat and the audits of other iterations" if point.estimated else ""
    help_text = f"{figure.text}{origin}; of the latest iteration that has this figure. Its n is {n_name}."
    samples = [(name, help_text, point.value)]
    for end, bound in (("lower", point.lo), ("upper", point.hi)):
        if bound is not None:
            samples.append((f"{stem}_ci_{end}{unit}", f"The {end} end of the 95% interval of {name}.", bound))
    return [*samples, (n_name, f"The number of {figure.of} that {name} rests on.", float(point.n))]


def _iterations(series: Mapping[str, Sequence[SeriesPoint]]) -> Metric:
    family = GaugeMetricFamily(
        "coevo_figure_iteration",
        "The iteration of the figure's latest measured value. It may be older than the run's last iteration, because "
        "not every iteration is audited.",
        labels=(*_LABELS, "figure"),
    )
    for run, points in series.items():
        for point in points:
            figure = figure_of(point.name)
            if figure is not None and not point.estimated:
                family.add_metric((run, point.oracle, point.over, figure.name), point.iteration)
    return family
