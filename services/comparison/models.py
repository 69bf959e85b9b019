"""Compares models on several benchmarks and on their average, from the evaluations that are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy.orm import Session

from core.settings.evaluation import MOST_SAMPLES, Protocol
from core.statistics.curves import CurvePoint, Tally, majority_at_k, pass_at_k
from core.statistics.estimates import Estimate, average, mean_share, paired_share_difference, share
from core.types import GREEDY
from services.comparison.runs import SCORES
from services.evaluations.figures import RUN_MODEL, figures_of, named_checkpoint, tally_of
from storage import queries
from storage.errors import NotThere, StoreError
from storage.queries.runs import RUN_NAME
from storage.rows import EvaluationRow

_OF_RUN = re.compile(rf"{RUN_NAME.pattern}(/labelled)?")  # all iterations of a loop, or of its branch
METRIC = re.compile(r"greedy|(pass|maj)@[1-9][0-9]{0,3}")
_OF_RESULTS = {"greedy": "greedy", "pass@1": "pass_at_1"}  # metrics that need no answers, in `SCORES`
_BY_K: dict[str, Callable[[Tally, int], float]] = {
    "pass": lambda tally, k: pass_at_k(tally.n, tally.right, k),
    "maj": majority_at_k,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A model's figure, and how much higher it is than the first model's on the same questions.

    `difference` is None for the first model, and where it has no figure. n is a number of questions. The intervals are
    over the choice of questions, for these very models: they say nothing about another training, so there is no p.
    """

    figure: Estimate
    difference: Estimate | None


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """A row of the table: one model's figures in one metric.

    `metric` is None where each benchmark has the metric that its samples give: mean@k, or greedy without samples. A
    benchmark without an evaluation of the model, or with fewer samples than the metric needs, is not among `cells`.
    `average` is over all benchmarks whose samples suffice; None if the model lacks one of these, or there is only one.
    """

    model: str
    metric: str | None
    cells: dict[str, Cell]
    average: Cell | None


@dataclass(frozen=True, slots=True)
class ComparedBenchmark:
    """A benchmark, how it was asked, and the evaluations that are compared: model -> the evaluation's key.

    Without evaluations there are 0 questions, and `protocol` is that of the suite, or one with enough samples.
    """

    name: str
    questions: int
    protocol: Protocol
    evaluations: dict[str, str]

    @property
    def samples(self) -> int:
        return self.protocol.samples  # of each question; 0: greedy answers only

    @property
    def metric(self) -> str:
        """The figure that the samples give: their mean, or greedy accuracy without any."""
        return f"mean@{self.samples}" if self.samples else "greedy"


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Models compared with the first. `missing` has the benchmarks on which a model has no evaluation to compare."""

    benchmarks: list[ComparedBenchmark]
    rows: list[ModelFigures]
    missing: dict[str, list[str]]


def k_curves(session: Session, comparison: ModelComparison) -> dict[str, dict[str, list[CurvePoint]]]:
    """Benchmark -> model -> pass@k, maj@k and the majority's share by k, for benchmarks with several samples.

    Raises `StoreError` if there is none.
    """
    sampled = [benchmark for benchmark in comparison.benchmarks if benchmark.samples > 1]
    if not sampled:
        raise StoreError("picture: expected a benchmark with several samples of each question, got none")
    return {
        benchmark.name: {
            model: figures.curve
            for model, key in benchmark.evaluations.items()
            if (figures := figures_of(session, key))
        }
        for benchmark in sampled
    }


Scores = dict[str, float]  # question -> its value


def compare_models(
    session: Session,
    models: Sequence[str],
    benchmarks: Mapping[str, Protocol | None],
    metrics: Sequence[str | None] = (None,),
) -> ModelComparison:
    """Compare models, named as `stored_model` takes them, on benchmarks; None takes evaluations of any protocol.

    Raises `NotThere`, and `StoreError` if a metric is unknown, no model has an evaluation, or the models were not asked
    the same questions in the same way.
    """
    for metric in metrics:
        if metric is not None and (not METRIC.fullmatch(metric) or needed(metric) > MOST_SAMPLES):
            expected = f"greedy, pass@K or maj@K, such as pass@16, with K up to {MOST_SAMPLES:,}"
            raise StoreError(f"metric: expected {expected}, got {metric!r}")
    stored = {model: stored_model(session, model) for model in models}
    sufficient = Protocol(samples=max(Protocol().samples, *map(needed, metrics)))
    compared = [_compared(session, stored, name, protocol, sufficient) for name, protocol in benchmarks.items()]
    if not any(benchmark.evaluations for benchmark in compared):
        raise StoreError(
            f"models {', '.join(models)}: expected evaluations on {', '.join(benchmarks)}, got none that is finished"
            f"{' and asked as in the suite' if any(benchmarks.values()) else ''}"
        )
    rows = [row for metric in dict.fromkeys(metrics) for row in _rows(session, [*stored], compared, metric)]
    missing = {
        model: names
        for model in models
        if (names := [benchmark.name for benchmark in compared if model not in benchmark.evaluations])
    }
    return ModelComparison(compared, sorted(rows, key=lambda row: models.index(row.model)), missing)


def stored_model(session: Session, name: str) -> str:
    """The name under which evaluations have a model: a run's model (`RUN_MODEL`) is a checkpoint; a folder's full path
    and URL#MODEL are stored as they are. Raises `NotThere`."""
    match = RUN_MODEL.fullmatch(name)
    return named_checkpoint(session, match[1], match[2])[0].id if match else name


def models_named(session: Session, names: Iterable[str], benchmarks: Sequence[str]) -> dict[str, list[str]]:
    """Name -> models that have a finished evaluation on one of the benchmarks. Raises `NotThere`.

    - RUN: the Solvers of the run's loop, the base model first;
    - RUN/labelled: the Solvers of the run's branch;
    - any other name: itself.
    """
    models: dict[str, list[str]] = {}
    for name in names:
        if not _OF_RUN.fullmatch(name):
            models[name] = [name]
            continue
        run, _, branch = name.partition("/")
        queries.runs.get_run(session, run)
        roles = {branch} if branch else {"base", "solver"}
        models[name] = [
            f"{run}:{branch}/{checkpoint.iteration}" if branch else f"{run}:{checkpoint.iteration or 'base'}"
            for checkpoint in queries.checkpoints.checkpoints_of(session, run)  # by iteration
            if checkpoint.role in roles
            and any(queries.evaluations.finished_on(session, checkpoint.id, benchmark) for benchmark in benchmarks)
        ]
        if not models[name]:
            raise NotThere(f"run {name}: expected a finished evaluation on {', '.join(benchmarks)}, got none")
    return models


def _compared(
    session: Session, stored: Mapping[str, str], name: str, protocol: Protocol | None, sufficient: Protocol
) -> ComparedBenchmark:
    """The evaluations of all models under the same conditions: questions, protocol and prompt. If there are several
    such conditions, those with the most samples, then with the most questions, then the newest."""
    newest = {
        model: {
            _conditions(row): row
            for row in queries.evaluations.finished_on(session, key, name)
            # Where it is known what was asked; `coevo show matrix` stores none of it.
            if {"benchmark", "decoding", "prompt"} <= row.manifest.keys() and protocol in (None, _protocol(row))
        }
        for model, key in stored.items()
    }
    evaluated = {model: rows for model, rows in newest.items() if rows}
    if not evaluated:
        return ComparedBenchmark(name, 0, protocol or sufficient, {})
    common = set.intersection(*map(set, evaluated.values()))
    if not common:
        asked = "; ".join(
            f"{model}: {' or '.join(map(_described, rows.values()))}" for model, rows in evaluated.items()
        )
        raise StoreError(f"benchmark {name}: expected the same questions, asked in the same way, got {asked}")
    candidates = [row for conditions, row in next(iter(evaluated.values())).items() if conditions in common]
    best = max(candidates, key=lambda row: (_protocol(row).samples, _questions(row), row.created_at))
    keys = {model: rows[_conditions(best)].id for model, rows in evaluated.items()}
    return ComparedBenchmark(name, _questions(best), _protocol(best), keys)


def _questions(row: EvaluationRow) -> int:
    questions: int = row.manifest["benchmark"]["questions"]
    return questions


def _protocol(row: EvaluationRow) -> Protocol:
    decoding = row.manifest["decoding"]
    return Protocol.model_validate({name: decoding[name] for name in Protocol.model_fields if name in decoding})


def _conditions(row: EvaluationRow) -> str:
    """The same for evaluations whose figures can be compared."""
    prompt = json.dumps(row.manifest["prompt"], sort_keys=True)
    return f"{row.manifest['benchmark']['sha256']} {_protocol(row).model_dump_json()} {prompt}"


def _described(row: EvaluationRow) -> str:
    protocol, sampling, sha256 = _protocol(row), _protocol(row).sampling, row.manifest["benchmark"]["sha256"]
    top_k = f"top-k {sampling.top_k}, " if sampling.top_k is not None else ""
    return (
        f"{_questions(row)} questions (sha256 {sha256[:8]}), {protocol.samples} samples of each at "
        f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, {top_k}{sampling.max_tokens} tokens"
    )


def _rows(
    session: Session, models: Sequence[str], compared: Sequence[ComparedBenchmark], metric: str | None
) -> list[ModelFigures]:
    most = max(benchmark.samples for benchmark in compared)
    if needed(metric) > most:
        raise StoreError(f"metric {metric}: expected {needed(metric)} samples of each question, got {most} at most")
    sufficient = {
        benchmark.name: metric or ("pass@1" if benchmark.samples else "greedy")
        for benchmark in compared
        if benchmark.samples >= needed(metric)
    }
    scores: dict[str, dict[str, Scores]] = {
        model: {
            benchmark.name: _scores(session, benchmark.evaluations[model], sufficient[benchmark.name])
            for benchmark in compared
            if benchmark.name in sufficient and model in benchmark.evaluations
        }
        for model in models
    }
    rows = []
    for model, of_model in scores.items():
        base = {} if model == models[0] else scores[models[0]]
        cells = {
            name: Cell(_figure(values, sufficient[name]), _difference({name: values}, base))
            for name, values in of_model.items()
        }
        over_all = None
        if len(of_model) == len(sufficient) > 1:
            over_all = Cell(average([cell.figure for cell in cells.values()]), _difference(of_model, base))
        rows.append(ModelFigures(model, metric, cells, over_all))
    return rows


def _figure(scores: Scores, metric: str) -> Estimate:
    """The figure on one benchmark, with the interval that `coevo evaluate` prints."""
    values = [*scores.values()]
    estimate = share(round(sum(values)), len(values)) if metric == "greedy" else mean_share(values)
    if estimate is None:
        raise StoreError(f"metric {metric}: expected stored answers, got an evaluation without any")
    return estimate


def _difference(of_model: Mapping[str, Scores], of_first: Mapping[str, Scores]) -> Estimate | None:
    """The difference to the first model over benchmarks, each of which counts the same, if the first has them all."""
    if not of_model.keys() <= of_first.keys():
        return None
    pairs = [(of_first[name], scores) for name, scores in of_model.items()]
    differences = [paired_share_difference([old[item] for item in new], [*new.values()]) for old, new in pairs]
    return average([difference for difference in differences if difference])


def needed(metric: str | None) -> int:
    """The number of samples of each question that a metric needs; 0 for greedy accuracy and for None."""
    return int((metric or "").partition("@")[2] or 0)


def _scores(session: Session, key: str, metric: str) -> Scores:
    """Question -> its value in a metric, in an evaluation with enough samples."""
    if metric in _OF_RESULTS:
        score, results = SCORES[_OF_RESULTS[metric]], queries.evaluations.results_of(session, key)
        if metric == "greedy" and any(result.greedy_correct is None for result in results):
            model = queries.evaluations.get_evaluation(session, key).model
            raise StoreError(f"metric greedy: expected a model that answers at temperature 0, {model} refused it")
        return {result.item_id: score(result) for result in results}
    by_k, k = _BY_K[metric.partition("@")[0]], needed(metric)
    answers = (answer for answer in queries.evaluations.answers_of(session, key) if answer.sample_index != GREEDY)
    return {item: by_k(tally_of([*group]), k) for item, group in groupby(answers, lambda answer: answer.item_id)}
