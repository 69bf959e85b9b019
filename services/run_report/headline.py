"""The result of a run in words: one sentence that the figures support, and more sentences with the details."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.settings.config import CoEvolution
from core.statistics.accuracy import Accuracy
from core.statistics.audits import n_text, questions_text
from core.statistics.estimates import Estimate, difference
from services.run_report.measures import Decision, Iteration, RunMeasures, measure
from storage.session import Store

_SPACE = "\N{NO-BREAK SPACE}"  # keeps an interval on the line of its figure


@dataclass(frozen=True, slots=True)
class Headline:
    """What a run has shown so far, in sentences."""

    sentence: str  # about what the Solver learned
    details: list[str]
    decisions: list[str]  # that were made after iterations, by the health check or by a person


def headline_of(store: Store, run: str) -> Headline:
    """The sentences about a run, which may be in progress. Raises `StoreError` when there is no such run."""
    measures = measure(store, run)
    return Headline(headline(measures), details(measures), [*decisions(measures).values()])


def percent(estimate: Estimate) -> str:
    """A share in percent, with its interval."""
    return f"{estimate.value:.1%}{_interval(estimate, '{:.1f}')}"


def points(estimate: Estimate) -> str:
    """A difference of shares in points, with its sign and interval."""
    text = f"{100 * estimate.value:+.1f}{_SPACE}points{_interval(estimate, '{:+.1f}')}"
    return text.replace("-", "\N{MINUS SIGN}")


def headline(measures: RunMeasures) -> str:
    """One sentence about what the Solver learned.

    It says "learned" only if both pass@1 and greedy accuracy rose by more than their intervals. pass@1 alone also rises
    when a model only becomes more certain of its answers.
    """
    last, base = measures.result, measures.iterations[0].accuracy
    if last is None or last.gain is None:
        evaluated = [iteration for iteration in measures.iterations if iteration.gain]
        if evaluated and evaluated[-1].gain is not None:
            change, iterations = points(evaluated[-1].gain.pass_at_1), _iterations(evaluated[-1].t)
            return f"The Solver is the base model again: after {iterations} pass@1 had moved by {change}."
        if base is None:
            return "Nothing can be said yet: no model of this run has been evaluated."
        return (
            "Nothing can be said about learning yet: only the base model has been evaluated, with "
            f"{percent(base.pass_at_1)} pass@1 and {percent(base.greedy)} greedy on {base.pass_at_1.n:,} questions."
        )
    gain = last.gain
    figures = f"{points(gain.pass_at_1)} for pass@1 and {points(gain.greedy)} for greedy decoding"
    change = (
        f"{figures} against the base model after {_iterations(last.t)}, over the same {gain.pass_at_1.n:,} questions"
    )
    return {
        (1, 1): f"The Solver learned: {change}.",
        (1, 0): f"The Solver got surer, not better: {change}.",
        (1, -1): f"The Solver got surer of worse answers: {change}.",
        (0, 1): f"The Solver gained in greedy decoding only: {change}.",
        (-1, 1): f"The Solver gained in greedy decoding and lost when sampling: {change}.",
        (0, 0): f"The Solver did not learn, as far as can be told: {change}.",
    }.get((_sign(gain.pass_at_1), _sign(gain.greedy)), f"The Solver did not learn, it got worse: {change}.")


def details(measures: RunMeasures) -> list[str]:
    """Sentences for below the headline: accuracies, the majority vote, the choice of the Solver, and the labels."""
    result, config = measures.result, measures.config
    sentences = [
        f"Its iterations {iterations[0]} to {iterations[-1]} are those of run {maker}."
        for maker, iterations in measures.inherited.items()
    ]
    before, after = measures.iterations[0].accuracy, result.accuracy if result else None
    if result is not None and result.gain is not None and before is not None and after is not None:
        sentences.append(
            f"{measures.held_out} pass@1 went from {percent(before.pass_at_1)} to {percent(after.pass_at_1)}, greedy "
            f"from {percent(before.greedy)} to {percent(after.greedy)}."
        )
        change = points(result.gain.majority)
        sentences.append(f"The majority of {config.evaluation.samples} samples moved by {change}.")
    newest = max((iteration.t for iteration in measures.iterations if iteration.accuracy), default=0)
    if result is not None and result.t != newest:
        criterion = config.early_stopping.benchmark if config.early_stopping else config.evaluation.benchmark
        picked_by = f"{criterion}, not by this benchmark"
        if criterion == config.evaluation.benchmark:
            picked_by = "this very benchmark, so its figures flatter it"
        solver = _solver(result.t)
        sentences.append(f"The run went on to iteration {newest} and came back to {solver}, picked by {picked_by}.")
    if measures.last_over_best is not None and measures.best is not None:
        best = measures.iterations[measures.best]
        sentences.append(_since_best(measures.last_over_best, best, measures.lost))
    audited = [(i.t, i.labels.audit.accuracy_kept) for i in measures.iterations if i.labels]
    learned = [(i.t, i.training_labels) for i in measures.iterations]
    source = "according to the oracle" if isinstance(config, CoEvolution) else "according to the prompts' answers"
    return [
        *sentences,
        *_over_time("Of the kept pseudo-labels", "by the oracle", audited, n_text),
        *_over_time("Of the labels that the Solver learned from", source, learned, questions_text),
    ]


def decisions(measures: RunMeasures) -> dict[int, str]:
    """Iteration -> a sentence about the decision that was made after it."""
    sentences = {
        iteration.t: _decision(iteration.t, iteration.decision)
        for iteration in measures.iterations
        if iteration.decision
    }
    return {t: sentence for t, sentence in sentences.items() if sentence}


def _decision(t: int, decision: Decision) -> str:
    target = "" if decision.back_to is None else _solver(decision.back_to)
    sentence = {
        "pause": f"The run waits for a person's decision after iteration {t}",
        "roll_back": f"After iteration {t} the run went back and continued from {target}",
        "stop": f"The run was stopped after iteration {t}" + (f": it ends with {target}" if target else ""),
        "warn": f"The run went on after iteration {t}" if decision.by_a_person else "",
    }.get(decision.action, "")
    if not decision.by_a_person or not sentence:
        return sentence and f"{sentence}."
    return f"{sentence}, as a person decided{f' (“{decision.note}”)' if decision.note else ''}."


def _since_best(change: Accuracy, best: Iteration, fell: tuple[bool, bool]) -> str:
    """How the figures changed since the best iteration. Only what was gained beyond chance can be lost again.

    `fell` says whether pass@1 and greedy accuracy fell. Their intervals do not say it, since the best one was picked
    afterwards."""
    figures = f"pass@1 changed by {points(change.pass_at_1)} and greedy by {points(change.greedy)}"
    since = f"since iteration {best.t}, the best by pass@1 as seen afterwards, {figures}."
    gained = (_sign(best.gain.pass_at_1) > 0, _sign(best.gain.greedy) > 0) if best.gain else (False, False)
    if (gained[0] and fell[0]) or (gained[1] and fell[1]):
        return f"Some of it was lost again: {since}"
    return f"It held, as far as can be told: {since}" if any(gained) and not any(fell) else f"S{since[1:]}"


def _over_time(
    subject: str, source: str, estimates: Sequence[tuple[int, Estimate | None]], n_of: Callable[[Estimate], str]
) -> list[str]:
    """A sentence about a share in the first and the last iteration that have one; empty if none has."""
    measured = [(t, value) for t, value in estimates if value is not None]
    if not measured:
        return []
    (first_t, first), (last_t, last) = measured[0], measured[-1]
    sentence = f"{subject}, {percent(first)} ({n_of(first)}) {_when(first_t)} were right {source}"
    if first_t == last_t:
        return [f"{sentence}."]
    # By the interval of the change: those of the two shares may overlap although the change is larger than chance.
    change = difference(last, first)
    verdict = {1: "the share rose", -1: "the share fell", 0: "chance alone may explain it"}[_sign(change)]
    by = f"a change of {points(change)}: {verdict}"
    return [f"{sentence}, and {percent(last)} ({n_of(last)}) {_when(last_t)}, {by}."]


def _when(t: int) -> str:
    return f"in iteration {t}" if t else "by the base model's votes"


def _solver(t: int) -> str:
    return f"the Solver of iteration {t}" if t else "the base model"


def _sign(estimate: Estimate) -> int:
    """1 or -1 if the interval is above or below 0, else 0."""
    return (estimate.lo > 0) - (estimate.hi < 0)


def _iterations(t: int) -> str:
    return "one iteration" if t == 1 else f"{t} iterations"


def _interval(estimate: Estimate, number_format: str) -> str:
    lo, hi = (number_format.format(100 * end) for end in (estimate.lo, estimate.hi))
    return f"{_SPACE}[{lo},{_SPACE}{hi}]"
