"""All figures of a run as a table with one row for each figure and one column for each iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from core.settings.training import Challenger, Solver
from core.statistics.accuracy import Accuracy
from core.statistics.audits import n_text, questions_text
from core.statistics.estimates import Estimate, share
from core.types import Role, Verdict
from orchestrator.report.charts import VERDICTS
from orchestrator.report.headline import number, percent, points
from orchestrator.report.labels import Labels
from orchestrator.report.measures import RunMeasures

MISSING = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `cells[t]` are the texts for iteration t: the figure with its interval, and its n."""

    name: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    rows: tuple[Row, ...]


def table(measures: RunMeasures) -> list[Group]:
    """The groups of rows. Rows and groups without any figure are left out."""
    groups = {
        f"{measures.held_out} benchmark": (*_accuracy(measures), *_levels(measures)),
        "Questions": (*_verdicts(measures), *_questions(measures)),
        "Labels": tuple(_label_rows(measures)),
        "Training, at the last step": tuple(row for role in measures.config.roles for row in _training(measures, role)),
    }
    filled = [Group(name, tuple(row for row in rows if _has_figures(row))) for name, rows in groups.items()]
    return [group for group in filled if group.rows]


def _accuracy(measures: RunMeasures) -> Iterator[Row]:
    getters: dict[str, Callable[[Accuracy], Estimate]] = {
        "pass@1": lambda accuracy: accuracy.pass_at_1,
        "greedy": lambda accuracy: accuracy.greedy,
        f"maj@{measures.config.evaluation.samples}": lambda accuracy: accuracy.majority,
    }
    for name, get in getters.items():
        values = [get(iteration.accuracy) if iteration.accuracy else None for iteration in measures.iterations]
        yield _row(name, values, percent)
    for name, get in getters.items():
        values = [get(iteration.gain) if iteration.gain else None for iteration in measures.iterations]
        yield _row(f"{name}, over base, points", values, partial(points, unit=""))
    for name, get in getters.items():
        values = [get(iteration.branch) if iteration.branch else None for iteration in measures.iterations]
        yield _row(f"{name}, of the branch on labelled data", values, percent)


def _levels(measures: RunMeasures) -> Iterator[Row]:
    for level in dict.fromkeys(level for iteration in measures.iterations for level in iteration.by_level):
        yield _row(
            f"pass@1, level {level}", [iteration.by_level.get(level) for iteration in measures.iterations], percent
        )
    if (stopping := measures.config.early_stopping) is not None:
        validation = [iteration.validation for iteration in measures.iterations]
        yield _row(f"pass@1, {stopping.benchmark}, for early stopping", validation, percent)


def _verdicts(measures: RunMeasures) -> Iterator[Row]:
    for verdict in VERDICTS:
        yield Row(
            verdict.replace("_", " "),
            tuple(
                _count(iteration.labels, verdict) if iteration.labels else (MISSING, "")
                for iteration in measures.iterations
            ),
        )


def _count(labels: Labels, verdict: Verdict) -> tuple[str, str]:
    count, candidates = labels.verdicts.get(verdict, 0), labels.stats.candidates
    estimate = share(count, candidates)
    if estimate is None:
        return MISSING, ""
    return f"{count:,}", f"{percent(estimate)} of n = {candidates:,}"


def _questions(measures: RunMeasures) -> Iterator[Row]:
    yield _of_labels("mean p_hat, asked", measures, lambda labels: labels.p_hat, number)
    yield _of_labels("mean uncertainty, asked", measures, lambda labels: labels.uncertainty, number)
    yield _of_labels("ill-posed, of asked", measures, lambda labels: labels.audit.ill_posed, percent)
    yield _of_labels("operations, candidates", measures, lambda labels: labels.operations.mean, number)
    yield _of_labels("operations, kept", measures, lambda labels: labels.operations_kept.mean, number)


def _label_rows(measures: RunMeasures) -> Iterator[Row]:
    labels = [iteration.labels for iteration in measures.iterations]
    yield _audited("right, of kept", [row.audit.accuracy_kept if row else None for row in labels])
    yield _audited("right, of all audited", [row.audit.accuracy_all if row else None for row in labels])
    for oracle in measures.other_oracles:
        audits = [labelled.other_audits.get(oracle) if labelled else None for labelled in labels]
        kept = [audit.accuracy_kept if audit else None for audit in audits]
        yield _audited(f"right, of kept, by {oracle}", kept)
        yield _audited(f"right, of all, by {oracle}", [audit.accuracy_all if audit else None for audit in audits])
    in_training = {
        "right, of those given in training": [row.training_labels for row in measures.iterations],
        "prompts labelled in training": [row.labelled for row in measures.iterations],
        "accuracy of negative labels": [row.negative_labels for row in measures.iterations],
    }
    for name, values in in_training.items():
        yield _audited(name, values, questions_text)


def _training(measures: RunMeasures, role: Role) -> Iterator[Row]:
    config: Challenger | Solver = getattr(measures.config, role)
    rollouts = f"n = {config.training.prompts_per_step * config.rollouts:,} rollouts"
    names = {"reward_mean": "reward", "kl": "KL", "entropy": "entropy", "response_length": "response length"}
    for name, title in names.items():
        values = [measures.at_last_step(role, name, iteration.t) for iteration in measures.iterations]
        cells = tuple((MISSING, "") if value is None else (f"{value:.4g}", rollouts) for value in values)
        yield Row(f"{role.capitalize()}: {title}", cells)


def time_table(measures: RunMeasures, stages: Sequence[str]) -> list[Row]:
    """The time of each stage that is done in some iteration, and the sum over all stages."""
    rows = [
        Row(
            stage.replace("_", " "),
            tuple((_duration(iteration.seconds.get(stage)), "") for iteration in measures.iterations),
        )
        for stage in stages
    ]
    total = Row(
        "all", tuple((_duration(sum(iteration.seconds.values()) or None), "") for iteration in measures.iterations)
    )
    return [row for row in (*rows, total) if _has_figures(row)]


def _of_labels(
    name: str, measures: RunMeasures, get: Callable[[Labels], Estimate | None], to_text: Callable[[Estimate], str]
) -> Row:
    values = [get(iteration.labels) if iteration.labels else None for iteration in measures.iterations]
    return _row(name, values, to_text)


def _row(name: str, values: Sequence[Estimate | None], to_text: Callable[[Estimate], str]) -> Row:
    cells = ((MISSING, "") if value is None else (to_text(value), f"n = {value.n:,}") for value in values)
    return Row(name, tuple(cells))


def _audited(name: str, values: Sequence[Estimate | None], n_of: Callable[[Estimate], str] = n_text) -> Row:
    """As `_row`, for shares of labels, which need not be a number of labels divided by n."""
    cells = ((MISSING, "") if value is None else (percent(value), n_of(value)) for value in values)
    return Row(name, tuple(cells))


def _has_figures(row: Row) -> bool:
    return any(figure != MISSING for figure, _ in row.cells)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder:02d} s" if minutes else f"{seconds:.1f} s"
