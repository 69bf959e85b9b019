"""The figures of a run as JSON, which `coevo report RUN --json` prints.

All shares are 0..1. Figures that do not exist yet are null, so that a run in progress can be reported.
"""

from __future__ import annotations

from dataclasses import asdict

from core.statistics.accuracy import Accuracy
from core.statistics.estimates import Estimate
from core.types import Role
from services.run_report.labels import Audit, Operations
from services.run_report.measures import Iteration, RunMeasures, measure
from storage.session import Store

Json = dict[str, object]


def figures(store: Store, run: str) -> Json:
    """Every figure of a run, ready for `json.dumps(…, allow_nan=False)`.

    `iterations` has one entry for the base model (t = 0) and one for each iteration that has begun. Its fields are:

    - `pass_at_1`: the mean over the benchmark's n items of correct / k samples. - `pseudo_label_accuracy`: the share of
    right pseudo-labels among the audited ones, by the run's own oracle and by the
      `others`. A graded sample is weighted to all pseudo-labels. The label of an ill-posed question is not right.
    - `challenger_reward`: the mean reward at the last step of the iteration's training.
    - `training_label_accuracy`: the share of right labels among those that the Solver's method made in training, where
      the truth is known. n counts different questions, as in the next two.
    - `training_labelled_share`: the share of prompts that the method labelled.
    - `negative_label_accuracy`: the share of wrong answers among those that SCRL took for wrong.
    - `after_labelled`: the accuracy of the Solver that was trained on labelled data apart from the loop.
    - `stands`: false if the run was rolled back to an earlier Solver.

    `inherited` maps other runs to the iterations of this one that they have made. `result` is the iteration whose
    Solver is the run's result so far. `training` maps role and name to [t, step, value].

    Raises `StoreError` when there is no such run.
    """
    measures = measure(store, run)
    training: dict[Role, dict[str, list[list[int | float | None]]]] = {"challenger": {}, "solver": {}}
    for metric in measures.training:
        training[metric.role].setdefault(metric.name, []).append([metric.iteration, metric.step, metric.value])
    return {
        "run": measures.run.name,
        "state": measures.state.state,
        "reason": measures.state.reason,
        "preset": measures.run.preset,
        "tags": measures.run.tags,
        "note": measures.run.note,
        "config": measures.config.model_dump(mode="json"),
        "inherited": dict(measures.inherited),
        "unfinished": [
            {"t": stage.iteration, "stage": stage.stage, "status": stage.status, "error": stage.error}
            for stage in measures.unfinished
        ],
        "result": measures.result and {"t": measures.result.t, "checkpoint": measures.result.checkpoint},
        "best_iteration": measures.best,
        "last_over_best": _accuracy(measures.last_over_best),
        "iterations": [_iteration(measures, iteration) for iteration in measures.iterations],
        "training": training,
    }


def _iteration(measures: RunMeasures, iteration: Iteration) -> Json:
    accuracy, labels = iteration.accuracy, iteration.labels
    ill_posed, p_hat = (labels.audit.ill_posed, labels.p_hat) if labels else (None, None)
    return {
        "t": iteration.t,
        "checkpoint": iteration.checkpoint,
        "pass_at_1": accuracy and accuracy.pass_at_1.value,
        "ci95": accuracy and [accuracy.pass_at_1.lo, accuracy.pass_at_1.hi],
        "n": accuracy and accuracy.pass_at_1.n,
        "greedy": accuracy and accuracy.greedy.value,
        "greedy_ci95": accuracy and [accuracy.greedy.lo, accuracy.greedy.hi],
        "maj_at_k": accuracy and accuracy.majority.value,
        "maj_ci95": accuracy and [accuracy.majority.lo, accuracy.majority.hi],
        "k": measures.config.evaluation.samples,
        "validation_pass_at_1": _json(iteration.validation),
        "gain_over_base": _accuracy(iteration.gain),
        "after_labelled": _accuracy(iteration.branch),
        "by_level": {level: estimate.value for level, estimate in iteration.by_level.items()} or None,
        "by_level_ci95": {level: _json(estimate) for level, estimate in iteration.by_level.items()} or None,
        "pseudo_label_accuracy": _label_accuracy(measures, iteration),
        "candidates": labels and labels.stats.candidates,
        "asked": labels and labels.asked,
        "kept": labels and labels.stats.kept,
        "refused": labels and labels.stats.refused,
        "malformed": labels and labels.stats.malformed,
        "verdicts": labels and dict(labels.verdicts),
        "ill_posed_share": ill_posed and ill_posed.value,
        "ill_posed": _json(ill_posed),
        "mean_p_hat": p_hat and p_hat.value,
        "p_hat": _json(p_hat),
        "uncertainty": _json(labels.uncertainty if labels else None),
        "p_hat_histogram": labels and {name: bars and [*bars] for name, bars in asdict(labels.histogram).items()},
        "difficulty": labels
        and {"candidates": _operations(labels.operations), "kept": _operations(labels.operations_kept)},
        "training_label_accuracy": _json(iteration.training_labels),
        "training_labelled_share": _json(iteration.labelled),
        "negative_label_accuracy": _json(iteration.negative_labels),
        "challenger_reward": measures.at_last_step("challenger", "reward_mean", iteration.t),
        "warnings": list(iteration.warnings),
        "untested": iteration.untested,
        "decision": iteration.decision and asdict(iteration.decision),
        "stands": iteration.stands,
        "seconds": iteration.seconds,
    }


def _label_accuracy(measures: RunMeasures, iteration: Iteration) -> Json | None:
    labels, oracle = iteration.labels, measures.config.audit.label
    if iteration.t == 0 and labels is None:
        return None
    if labels is None:
        return {"kept": None, "all": None, "oracle": oracle, "others": {}}
    others: Json = {name: _audit(audit) for name, audit in labels.other_audits.items()}
    return {**_audit(labels.audit), "oracle": oracle, "others": others}


def _audit(audit: Audit) -> Json:
    return {"kept": _json(audit.accuracy_kept), "all": _json(audit.accuracy_all)}


def _operations(operations: Operations) -> Json:
    return {"mean": _json(operations.mean), "counts": {str(count): n for count, n in operations.counts.items()}}


def _accuracy(accuracy: Accuracy | None) -> Json | None:
    if accuracy is None:
        return None
    return {
        "pass_at_1": _json(accuracy.pass_at_1),
        "greedy": _json(accuracy.greedy),
        "maj_at_k": _json(accuracy.majority),
    }


def _json(figure: Estimate | None) -> Json | None:
    return None if figure is None else figure.as_json()
