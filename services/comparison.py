"""Compares runs, grouped by arm: accuracy by iteration over seeds, and paired differences to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy.orm import Session

from core.figures import NEGATIVE_LABEL_ACCURACY, TRAINING_LABELS, is_share
from core.settings.provenance import differing
from core.statistics.accuracy import Accuracy
from core.statistics.estimates import Estimate, paired_share_difference
from core.statistics.seeds import Difference, compare_seeds, over_seeds, seed_pairs
from core.types import CheckpointRole, Evaluated
from services.comparison_remarks import remarks
from services.run_series import series
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
class Point:
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

    `curves` has each figure by iteration. `differences` are those to the baseline; empty for the baseline itself.

    If the runs of an arm train each Solver on labelled data apart from the loop, the results are an arm of their own,
    ARM/labelled. It has the same runs and settings, and its only figures are those of accuracy.
    """

    arm: str
    runs: list[str]
    unfinished: list[str]
    iteration: int
    settings: dict[str, Any]  # only those in which the arms differ
    curves: dict[str, list[Point]]
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
    accuracies = _accuracies(session, evaluations.values())
    results = _by_arm(counted, evaluations, accuracies)
    common = {arm: set.intersection(*map(set, of_runs.values())) for arm, of_runs in results.items()}
    left_out = {arm: f"none of its runs has been evaluated on {benchmark} yet" for arm in arms if arm not in results}
    for arm, iterations in common.items():
        if not iterations:
            del results[arm]
            left_out[arm] = f"its runs have been evaluated on {benchmark}, but after no iteration in common"
    if baseline in left_out:
        raise StoreError(f"baseline {baseline}: it cannot be compared, since {left_out[baseline]}")
    last = {arm: max(common[arm]) for arm in results}
    final = {
        arm: [(int(configs[run]["seed"]), _answered(session, of_run[last[arm]])) for run, of_run in of_runs.items()]
        for arm, of_runs in results.items()
    }
    questions = sorted(set.intersection(*(set(result) for runs in final.values() for _, result in runs)))
    differences = {
        arm: _differences(final[baseline], runs, questions)
        for arm, runs in final.items()
        if arm != baseline and questions
    }
    seeds = {arm: [seed for seed, _ in runs] for arm, runs in final.items()}
    settings = differing({arm: configs[next(iter(of_runs))] for arm, of_runs in results.items()}, NOT_COMPARED)
    return Comparison(
        benchmark,
        len(questions),
        baseline,
        [
            ArmFigures(
                arm,
                [*of_runs],
                [run for run in arms[_loop(arm)] if run not in counted[_loop(arm)]],
                last[arm],
                settings[arm],
                _curves(of_runs.values(), accuracies) | (_loop_curves(session, [*of_runs]) if arm in arms else {}),
                differences.get(arm, {}),
            )
            for arm, of_runs in results.items()
        ],
        [
            *remarks(baseline, seeds, differences),
            *(
                f"{', '.join(arm for arm, other in left_out.items() if other == reason)}: left out, since {reason}."
                for reason in dict.fromkeys(left_out.values())
            ),
        ],
    )


def _loop(arm: str) -> str:
    """The arm that an arm or its branch belongs to."""
    return arm.partition("/")[0]


def counted_runs(session: Session, runs: Sequence[str]) -> list[str]:
    """The runs of an arm that have ended, or all as long as none has."""
    return [run for run in runs if queries.runs.get_run(session, run).status in ENDED] or [*runs]


def _by_arm(
    arms: Mapping[str, Sequence[str]],
    evaluations: Mapping[str, Mapping[CheckpointRole, Results]],
    known: Collection[str],
) -> dict[str, dict[str, Results]]:
    """Arm -> run -> its results; first an arm's Solvers of the loop, then those that were trained on labelled data.

    Evaluations that are not `known`, and runs and arms without results, are left out.
    """
    results = {
        run: {role: {t: key for t, key in of_role.items() if key in known} for role, of_role in of_run.items()}
        for run, of_run in evaluations.items()
    }
    by_arm: dict[str, dict[str, Results]] = {}
    for arm, runs in arms.items():
        for role in _ROLES:
            of_runs: dict[str, Results] = {run: results[run][role] for run in runs if results[run].get(role)}
            if of_runs:
                by_arm[arm if role == "solver" else f"{arm}/{role}"] = of_runs
    return by_arm


def config_of(session: Session, run: str) -> dict[str, Any]:
    """The settings of a run; those that are newer than the run have their defaults."""
    return queries.runs.config_of_run(session, run).model_dump(mode="json")


def _evaluations(session: Session, run: str, benchmark: str) -> dict[CheckpointRole, dict[int, str]]:
    """Role -> a run's evaluations that are finished. The base model is the Solver of iteration 0."""
    checkpoints = {checkpoint.id: checkpoint for checkpoint in queries.checkpoints.checkpoints_of(session, run)}
    evaluations: dict[CheckpointRole, dict[int, str]] = {}
    for row in queries.evaluations.of_run(session, run):
        if row.benchmark == benchmark and row.finished_at is not None:
            checkpoint = checkpoints[row.model]
            role: CheckpointRole = "solver" if checkpoint.role == "base" else checkpoint.role
            evaluations.setdefault(role, {})[checkpoint.iteration] = row.id
    return evaluations


def _accuracies(session: Session, evaluations: Iterable[Mapping[CheckpointRole, Results]]) -> dict[str, Accuracy]:
    """The accuracy in each of the evaluations, summed in the database: a curve needs no single question."""
    keys = [key for of_run in evaluations for of_role in of_run.values() for key in of_role.values()]
    sums = queries.evaluations.sums_by_id(session, keys)
    return {key: row.accuracy for key, row in sums.items() if row.accuracy is not None}


def _answered(session: Session, evaluation: str) -> dict[str, Evaluated]:
    return {result.item_id: result for result in queries.evaluations.results_of(session, evaluation)}


def _curves(results: Collection[Results], accuracies: Mapping[str, Accuracy]) -> dict[str, list[Point]]:
    """The accuracy of an arm by iteration; `results` are those of its runs."""
    by_figure: dict[str, list[dict[int, float]]] = {
        name: [{t: getattr(accuracies[key], name).value for t, key in of_run.items()} for of_run in results]
        for name in SCORES
    }
    questions = min((accuracies[key].greedy.n for of_run in results for key in of_run.values()), default=0)
    curves = {name: _points(values, True, 1 / questions if questions else 0.0) for name, values in by_figure.items()}
    return {name: points for name, points in curves.items() if points}


def _loop_curves(session: Session, runs: Sequence[str]) -> dict[str, list[Point]]:
    """The series of an arm's loop by iteration, without those that it does not have."""
    by_figure = {
        name: [{t: figure.value for t, figure in series(session, run, name).items()} for run in runs] for name in SERIES
    }
    curves = {name: _points(values, is_share(name)) for name, values in by_figure.items()}
    return {name: points for name, points in curves.items() if points}


def _points(values_of_runs: Sequence[Mapping[int, float]], of_share: bool, grain: float = 0.0) -> list[Point]:
    common = set.intersection(*(set(values) for values in values_of_runs))
    points = []
    for t in sorted(common):
        values = [of_run[t] for of_run in values_of_runs]
        points.append(Point(t, fmean(values), over_seeds(values, of_share, grain), values))
    return points


_Final = Sequence[tuple[int, Mapping[str, Evaluated]]]  # seed and results of each run of an arm


def _differences(baseline: _Final, arm: _Final, questions: Sequence[str]) -> dict[str, Difference]:
    """How much higher the figures of `arm` are, on questions that all runs have answered."""
    return {name: _difference(baseline, arm, questions, score, name) for name, score in SCORES.items()}


def _difference(
    baseline: _Final, arm: _Final, questions: Sequence[str], score: Callable[[Evaluated], float], name: str
) -> Difference:
    scores = [[[score(result[question]) for question in questions] for _, result in runs] for runs in (baseline, arm)]
    before, after = (
        [(seed, fmean(values)) for (seed, _), values in zip(runs, of_arm, strict=True)]
        for runs, of_arm in zip((baseline, arm), scores, strict=True)
    )
    pairs = seed_pairs(before, after)
    if pairs:  # then only the runs that are paired count, so that all figures are of the same runs
        before, after = ([runs[pair[side]] for pair in pairs] for side, runs in enumerate((before, after)))
        scores = [[of_arm[pair[side]] for pair in pairs] for side, of_arm in enumerate(scores)]
    by_question = [[fmean(values) for values in zip(*of_arm, strict=True)] for of_arm in scores]
    over_questions = paired_share_difference(*by_question)
    if over_questions is None:
        raise ValueError("questions: expected at least one")
    samples = max(1, baseline[0][1][questions[0]].samples) if name == "pass_at_1" else 1
    return Difference(
        over_questions.value,
        compare_seeds(before, after, 1 / (samples * len(questions))),
        over_questions,
        [ours - theirs for (_, theirs), (_, ours) in zip(before, after, strict=True)] if pairs else [],
    )


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
