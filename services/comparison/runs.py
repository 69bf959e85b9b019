"""Compares runs, grouped by arm: accuracy by iteration over seeds, and paired differences to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from sqlalchemy.orm import Session

from core.figures import NEGATIVE_LABEL_ACCURACY, TRAINING_LABELS, is_share
from core.settings.provenance import differing
from core.statistics.accuracy import Accuracy
from core.statistics.estimates import Estimate, paired_share_difference
from core.statistics.seeds import Difference, compare_seeds, over_seeds, seed_pairs
from core.types import CheckpointRole, Evaluated
from services.comparison.remarks import remarks
from services.views.series import series
from storage import queries
from storage.errors import StoreError
from storage.rows import ENDED

# The figures of accuracy that are compared, each as a value of one question; the fields of `Accuracy` are their means.
SCORES: dict[str, Callable[[Evaluated], float]] = {
    "greedy": lambda result: float(bool(result.greedy_correct)),
    "majority": lambda result: float(result.majority_correct),
    "pass_at_1": lambda result: result.correct / result.samples,
}
# Series of the loop, which have no value for each question.
SERIES = (
    "label_accuracy",
    "kept_share",
    "p_hat",
    "policy_entropy",
    "kl",
    "pseudo_reward",
    "majority_share",
    TRAINING_LABELS,
    NEGATIVE_LABEL_ACCURACY,
    "positive_labels",
    "negative_labels",
)
NOT_COMPARED = ("seed", *queries.runs.LIMITS)  # settings in which runs may differ without being told apart


@dataclass(frozen=True, slots=True)
class ArmPoint:
    """A figure of an arm after one iteration. `mean` is over its runs; `interval` too, and None with a single run."""

    iteration: int
    mean: float
    interval: Estimate | None
    values: list[float]  # by run


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm, after `iteration`, the last that all of its `runs` have reached.

    `unfinished` are runs that have not ended and are not counted, since their first iterations would stand for the arm.
    As long as no run of an arm has ended, all are counted.

    `curves` has each figure by iteration; those up to `inherited` are the same trainings as in other runs.
    `differences` are those to the baseline; empty for the baseline itself.

    If the runs of an arm train each Solver on labelled data apart from the loop, the results are an arm of their own,
    ARM/labelled. It has the same runs and settings, and its only figures are those of accuracy.
    """

    arm: str
    runs: list[str]
    unfinished: list[str]
    iteration: int
    inherited: int | None  # the last iteration that all of its runs have from others
    settings: dict[str, Any]  # only those in which the arms differ
    curves: dict[str, list[ArmPoint]]
    differences: dict[str, Difference]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms compared on a benchmark, each after its last iteration.

    `questions` is the number of questions that all runs have answered. Differences are on these; if there are none,
    because the benchmark's file has changed, there are no differences. `remarks` are sentences that say what the
    intervals of the differences cover, and which arms are left out and why.
    """

    benchmark: str
    questions: int
    baseline: str
    arms: list[ArmFigures]
    remarks: list[str]


Results = Mapping[int, str]  # of the Solvers of a run: iteration -> id of the evaluation
_ROLES: tuple[CheckpointRole, ...] = ("solver", "labelled")  # that are compared


@dataclass(frozen=True, slots=True)
class _Compared:
    """An arm, or its Solvers that were trained on labelled data apart from the loop; `of` is the arm itself."""

    name: str
    of: str
    results: Mapping[str, Results]  # by run
    last: int  # the last iteration after which all runs have been evaluated


def compare(session: Session, arms: Mapping[str, Sequence[str]], baseline: str) -> Comparison:
    """Compare arms, each given as its runs in the order of their seeds.

    Runs that have not been evaluated yet are left out, and so are arms without any other, and arms whose runs have been
    evaluated after different iterations only. The remarks name these arms. Raises `NotThere`, and `StoreError` if they
    cannot be compared.
    """
    configs = {run: config_of(session, run) for runs in arms.values() for run in runs}
    benchmarks = {config["evaluation"]["benchmark"] for config in configs.values()}
    if len(benchmarks) != 1:
        raise StoreError(f"runs {', '.join(configs)}: expected one benchmark, got {', '.join(sorted(benchmarks))}")
    benchmark = benchmarks.pop()
    counted = {arm: counted_runs(session, runs) for arm, runs in arms.items()}
    evaluations = {run: _evaluations(session, run, benchmark) for runs in counted.values() for run in runs}
    # Summed in the database, because a curve needs no single question.
    keys = [key for of_run in evaluations.values() for of_role in of_run.values() for key in of_role.values()]
    sums = queries.evaluations.sums_by_id(session, keys)
    accuracies = {key: row.accuracy for key, row in sums.items() if row.accuracy is not None}

    compared: list[_Compared] = []
    not_evaluated, nothing_in_common = list[str](), list[str]()
    for of, runs in counted.items():
        for role in _ROLES:
            name = of if role == "solver" else f"{of}/{role}"
            results: dict[str, Results] = {}
            for run in runs:
                of_run = {t: key for t, key in evaluations[run].get(role, {}).items() if key in accuracies}
                results |= {run: of_run} if of_run else {}
            common = set.intersection(*map(set, results.values())) if results else set[int]()
            if common:
                compared.append(_Compared(name, of, results, max(common)))
            elif results:
                nothing_in_common.append(name)
            elif role == "solver":
                not_evaluated.append(name)
    left_out = {
        f"none of its runs has been evaluated on {benchmark} yet": not_evaluated,
        f"its runs have been evaluated on {benchmark}, but after no iteration in common": nothing_in_common,
    }
    for reason, names in left_out.items():
        if baseline in names:
            raise StoreError(f"baseline {baseline}: it cannot be compared, since {reason}")

    final: dict[str, list[_Answers]] = {}  # after the last iteration of each arm
    for arm in compared:
        final[arm.name] = []
        for run, evaluated in arm.results.items():
            answers = queries.evaluations.results_of(session, evaluated[arm.last])
            final[arm.name].append((int(configs[run]["seed"]), {answer.item_id: answer for answer in answers}))
    answered = [set(answers) for of_arm in final.values() for _, answers in of_arm]
    questions = sorted(set.intersection(*answered))
    differences = {
        name: {figure: _difference(final[baseline], of_arm, questions, figure) for figure in SCORES}
        for name, of_arm in final.items()
        if name != baseline and questions
    }
    settings = differing({arm.name: configs[next(iter(arm.results))] for arm in compared}, NOT_COMPARED)
    figures = []
    for arm in compared:
        of_loop = _loop_curves(session, [*arm.results]) if arm.name == arm.of else {}
        curves = _curves(arm.results.values(), accuracies) | of_loop
        unfinished = [run for run in arms[arm.of] if run not in counted[arm.of]]
        more = differences.get(arm.name, {})
        figures.append(
            ArmFigures(
                *(arm.name, [*arm.results], unfinished, arm.last, inherited_until(session, [*arm.results])),
                *(settings[arm.name], curves),
                differences=more,
            )
        )
    seeds = {name: [seed for seed, _ in of_arm] for name, of_arm in final.items()}
    notes = [*remarks(baseline, seeds, differences)]
    notes += [f"{', '.join(names)}: left out, since {reason}." for reason, names in left_out.items() if names]
    notes += inherited_in(session, [run for arm in compared if arm.name == arm.of for run in arm.results])
    return Comparison(benchmark, len(questions), baseline, figures, notes)


def inherited_in(session: Session, runs: Sequence[str]) -> list[str]:
    """A sentence about the iterations that some of the runs have from others, for each iteration up to which they do.
    Both then stand for the same training."""
    forks: dict[int, list[tuple[str, str]]] = {}
    for run in runs:
        if inherited := queries.forks.inherited(session, run):
            forks.setdefault(max(inherited), []).append((run, inherited[max(inherited)]))
    return [
        f"The iterations up to {last} of {', '.join(run for run, _ in pairs)} are those of "
        f"{', '.join(dict.fromkeys(of for _, of in pairs))}."
        for last, pairs in sorted(forks.items())
    ]


def inherited_until(session: Session, runs: Sequence[str]) -> int | None:
    """The last iteration that all of an arm's runs have from others; None if one of them has none."""
    lasts = [max(queries.forks.inherited(session, run), default=None) for run in runs]
    known = [last for last in lasts if last is not None]
    return min(known) if known and len(known) == len(lasts) else None


def counted_runs(session: Session, runs: Sequence[str]) -> list[str]:
    """The runs of an arm that have ended, or all as long as none has."""
    return [run for run in runs if queries.runs.get_run(session, run).status in ENDED] or [*runs]


def config_of(session: Session, run: str) -> dict[str, Any]:
    """The settings of a run; those that are newer than the run have their defaults. The iteration after which a fork
    begins is one too: it is no run with another seed."""
    config, begins_at = queries.runs.config_of_run(session, run), queries.forks.begins_at(session, run)
    return {**({"forked_after": begins_at - 1} if begins_at else {}), **config.model_dump(mode="json")}


def _evaluations(session: Session, run: str, benchmark: str) -> dict[CheckpointRole, dict[int, str]]:
    """Role -> a run's evaluations that are finished. The base model is the Solver of iteration 0."""
    checkpoints = {checkpoint.id: checkpoint for checkpoint in queries.checkpoints.checkpoints_of(session, run)}
    evaluations: dict[CheckpointRole, dict[int, str]] = {}
    makers = dict.fromkeys([*queries.forks.inherited(session, run).values(), run])
    for row in chain.from_iterable(queries.evaluations.of_run(session, maker) for maker in makers):
        if row.model in checkpoints and row.benchmark == benchmark and row.finished_at is not None:
            checkpoint = checkpoints[row.model]
            role: CheckpointRole = "solver" if checkpoint.role == "base" else checkpoint.role
            evaluations.setdefault(role, {})[checkpoint.iteration] = row.id
    return evaluations


def _curves(results: Collection[Results], accuracies: Mapping[str, Accuracy]) -> dict[str, list[ArmPoint]]:
    """The accuracy of an arm by iteration; `results` are those of its runs."""
    by_figure: dict[str, list[dict[int, float]]] = {
        name: [{t: getattr(accuracies[key], name).value for t, key in of_run.items()} for of_run in results]
        for name in SCORES
    }
    questions = min((accuracies[key].greedy.n for of_run in results for key in of_run.values()), default=0)
    curves = {name: _points(values, True, 1 / questions if questions else 0.0) for name, values in by_figure.items()}
    return {name: points for name, points in curves.items() if points}


def _loop_curves(session: Session, runs: Sequence[str]) -> dict[str, list[ArmPoint]]:
    """The series of an arm's loop by iteration, without those that it does not have."""
    by_figure = {
        name: [{t: figure.value for t, figure in series(session, run, name).items()} for run in runs] for name in SERIES
    }
    curves = {name: _points(values, is_share(name)) for name, values in by_figure.items()}
    return {name: points for name, points in curves.items() if points}


def _points(values_of_runs: Sequence[Mapping[int, float]], of_share: bool, grain: float = 0.0) -> list[ArmPoint]:
    common = set.intersection(*(set(values) for values in values_of_runs))
    points = []
    for t in sorted(common):
        values = [of_run[t] for of_run in values_of_runs]
        points.append(ArmPoint(t, fmean(values), over_seeds(values, of_share, grain), values))
    return points


_Answers = tuple[int, Mapping[str, Evaluated]]  # of a run: its seed, and question -> result


def _difference(
    baseline: Sequence[_Answers], arm: Sequence[_Answers], questions: Sequence[str], name: str
) -> Difference:
    """How much higher a figure of `arm` is, on questions that all runs have answered; there is at least one."""
    score = SCORES[name]
    before, after = (
        [(seed, [score(answers[question]) for question in questions]) for seed, answers in runs]
        for runs in (baseline, arm)
    )
    pairs = seed_pairs(_means(before), _means(after))
    if pairs:  # then only the runs that are paired count, so that all figures are of the same runs
        before, after = [before[theirs] for theirs, _ in pairs], [after[ours] for _, ours in pairs]
    by_question = [
        [fmean(values) for values in zip(*(scores for _, scores in runs), strict=True)] for runs in (before, after)
    ]
    over_questions = paired_share_difference(*by_question)
    if over_questions is None:
        raise ValueError("questions: expected at least one")
    samples = max(1, baseline[0][1][questions[0]].samples) if name == "pass_at_1" else 1
    means_before, means_after = _means(before), _means(after)
    return Difference(
        over_questions.value,
        compare_seeds(means_before, means_after, 1 / (samples * len(questions))),
        over_questions,
        [ours - theirs for (_, theirs), (_, ours) in zip(means_before, means_after, strict=True)] if pairs else [],
    )


def _means(runs: Sequence[tuple[int, Sequence[float]]]) -> list[tuple[int, float]]:
    """Seed and mean of each run."""
    return [(seed, fmean(scores)) for seed, scores in runs]


def arms_named(session: Session, names: Sequence[str]) -> tuple[dict[str, list[str]], str]:
    """The arms that are compared, and the baseline: those of an experiment, or runs, each an arm of its own.

    Raises `NotThere`, and `StoreError` if a single run is named.
    """
    arms = arms_of(session, names)
    if len(names) == 1 and arms == {names[0]: [names[0]]}:
        raise StoreError(f"run {names[0]}: expected another run to compare it with, or an experiment")
    return arms, next(iter(arms))


def arms_of(session: Session, names: Sequence[str]) -> dict[str, list[str]]:
    """The runs of each arm of an experiment, or runs, each as an arm of its own. Raises `NotThere`."""
    if len(names) == 1 and names[0] in queries.experiments.list_experiments(session):
        return queries.experiments.arms_of(session, names[0])
    for name in names:
        queries.runs.get_run(session, name)
    return {name: [name] for name in dict.fromkeys(names)}
