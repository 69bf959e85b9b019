"""What a run taught, in words: one sentence that the figures bear, and the rest that one should know with it."""

from __future__ import annotations

from collections.abc import Sequence

from core.settings.config import CoEvolution
from core.statistics.accuracy import Accuracy
from core.statistics.estimates import Estimate, difference
from orchestrator.report.measures import Decision, Iteration, RunMeasures

_STAY = "\N{NO-BREAK SPACE}"  # an interval stays on the line of its figure


def percent(estimate: Estimate) -> str:
    return f"{estimate.value:.1%}{_ends(estimate, 100, '{:.1f}')}"


def points(estimate: Estimate, unit: str = f"{_STAY}points") -> str:
    """A difference of shares, in points with its sign."""
    return _minus(f"{100 * estimate.value:+.1f}{unit}{_ends(estimate, 100, '{:+.1f}')}")


def number(estimate: Estimate) -> str:
    return _minus(f"{estimate.value:.2f}{_ends(estimate, 1, '{:.2f}')}")


def headline(measures: RunMeasures) -> str:
    """One sentence. It says that the Solver learned only when both pass@1 and greedy rose beyond their intervals:
    pass@1 alone rises also when a model grows surer of what it says."""
    last = measures.result
    if last is None or last.gain is None:
        return _gone_back(measures) or _not_yet(measures)
    gain = last.gain
    figures = f"{points(gain.pass_at_1)} for pass@1 and {points(gain.greedy)} for greedy decoding"
    what = f"{figures} against the base model after {_turns(last.t)}, over the same {gain.pass_at_1.n:,} questions"
    return {
        (1, 1): f"The Solver learned: {what}.",
        (1, 0): f"The Solver got surer, not better: {what}.",
        (1, -1): f"The Solver got surer of worse answers: {what}.",
        (0, 1): f"The Solver gained in greedy decoding only: {what}.",
        (-1, 1): f"The Solver gained in greedy decoding and lost when sampling: {what}.",
        (0, 0): f"The Solver did not learn, as far as can be told: {what}.",
    }.get((_sign(gain.pass_at_1), _sign(gain.greedy)), f"The Solver did not learn, it got worse: {what}.")


def details(measures: RunMeasures) -> list[str]:
    """Sentences for below the headline: where it stood best, the vote, what became of it, and the labels."""
    sentences, last = [], measures.result
    if last is not None and last.gain is not None:
        moved = points(last.gain.majority)
        sentences.append(_levels(measures.held_out, measures.iterations[0], last))
        sentences.append(f"The majority of {measures.config.evaluation.samples} samples moved by {moved}.")
    sentences += _picked(measures)
    if measures.last_over_best is not None and measures.best is not None:
        sentences.append(_since_best(measures.last_over_best, measures.best))
    return [*sentences, *_labels(measures)]


def decisions(measures: RunMeasures) -> dict[int, str]:
    """Where something was decided about the run: iteration -> a sentence."""
    sentences = {
        iteration.t: _decision(iteration.t, iteration.decision)
        for iteration in measures.iterations
        if iteration.decision
    }
    return {t: sentence for t, sentence in sentences.items() if sentence}


def _decision(t: int, decision: Decision) -> str:
    to = "" if decision.back_to is None else _solver(decision.back_to)
    sentence = {
        "pause": f"The run waits for a person's decision after iteration {t}",
        "roll_back": f"After iteration {t} the run went back: on from {to}",
        "stop": f"The run was stopped after iteration {t}" + (f": it ends with {to}" if to else ""),
        "warn": f"The run went on after iteration {t}" if decision.by_a_person else "",
    }.get(decision.action, "")
    if not decision.by_a_person or not sentence:
        return sentence and f"{sentence}."
    return f"{sentence}, as a person decided{f' (“{decision.note}”)' if decision.note else ''}."


def _gone_back(measures: RunMeasures) -> str:
    """Of a run that came back to the model that it began with."""
    left = [iteration for iteration in measures.iterations if iteration.gain]
    if not left or left[-1].gain is None:
        return ""
    moved = points(left[-1].gain.pass_at_1)
    return f"The Solver is the base model again: after {_turns(left[-1].t)} pass@1 had moved by {moved}."


def _picked(measures: RunMeasures) -> list[str]:
    """That the Solver is not the last one, and what picked it."""
    last, result = (
        max((iteration.t for iteration in measures.iterations if iteration.accuracy), default=0),
        measures.result,
    )
    if result is None or result.t == last:
        return []
    stopping, benchmark = measures.config.early_stopping, measures.config.evaluation.benchmark
    by = stopping.benchmark if stopping else benchmark
    flatters = "this very benchmark, so its figures flatter it" if by == benchmark else f"{by}, not by this benchmark"
    return [f"The run went on to iteration {last} and came back to {_solver(result.t)}, picked by {flatters}."]


def _not_yet(measures: RunMeasures) -> str:
    base = measures.iterations[0].accuracy
    if base is None:
        return "Nothing can be said yet: no model of this run has been evaluated."
    return (
        "Nothing can be said about learning yet: only the base model has been evaluated, with "
        f"{percent(base.pass_at_1)} pass@1 and {percent(base.greedy)} greedy on {base.pass_at_1.n:,} questions."
    )


def _levels(held_out: str, base: Iteration, last: Iteration) -> str:
    if base.accuracy is None or last.accuracy is None:
        return ""
    return (
        f"{held_out} pass@1 went from {percent(base.accuracy.pass_at_1)} to {percent(last.accuracy.pass_at_1)}, greedy "
        f"from {percent(base.accuracy.greedy)} to {percent(last.accuracy.greedy)}."
    )


def _since_best(change: Accuracy, best: int) -> str:
    changed = f"pass@1 changed by {points(change.pass_at_1)} and greedy by {points(change.greedy)}"
    fell = _sign(change.pass_at_1) < 0 or _sign(change.greedy) < 0
    verb = "Some of it was lost again" if fell else "It held, as far as can be told"
    return f"{verb}: since iteration {best}, the best by pass@1 as seen afterwards, {changed}."


def _labels(measures: RunMeasures) -> list[str]:
    accuracies = [(i.t, i.labels.audit.accuracy_kept) for i in measures.iterations if i.labels]
    learned = [(i.t, i.training_labels) for i in measures.iterations]
    by = "according to the oracle" if isinstance(measures.config, CoEvolution) else "according to the prompts' answers"
    return [
        *_over_time("Of the kept pseudo-labels", "by the oracle", accuracies),
        *_over_time("Of the labels that the Solver learned from", by, learned),
    ]


def _over_time(whose: str, by: str, estimates: Sequence[tuple[int, Estimate | None]]) -> list[str]:
    known = [(t, value) for t, value in estimates if value is not None]
    if not known:
        return []
    (first, before), (last, after) = known[0], known[-1]
    shown = f"{percent(before)} (n = {before.n:,}) {_when(first)}"
    if first == last:
        return [f"{whose}, {shown} were right {by}."]
    now = f"{percent(after)} (n = {after.n:,}) {_when(last)}"
    return [f"{whose}, {shown} were right {by}, and {now}{_moved(before, after)}."]


def _when(t: int) -> str:
    return f"in iteration {t}" if t else "by the base model's votes"


def _solver(t: int) -> str:
    return f"the Solver of iteration {t}" if t else "the base model"


def _moved(before: Estimate, after: Estimate) -> str:
    """How a share changed, by the interval of the change: two intervals may overlap where it is beyond chance."""
    change = difference(after, before)
    verdict = {1: "the share rose", -1: "the share fell", 0: "chance alone may explain it"}[_sign(change)]
    return f", a change of {points(change)}: {verdict}"


def _sign(estimate: Estimate) -> int:
    """1 or -1 when the interval leaves out 0, else 0."""
    return (estimate.lo > 0) - (estimate.hi < 0)


def _turns(t: int) -> str:
    return "one iteration" if t == 1 else f"{t} iterations"


def _ends(estimate: Estimate, scale: float, form: str) -> str:
    lo, hi = (form.format(scale * end) for end in (estimate.lo, estimate.hi))
    return f"{_STAY}[{lo},{_STAY}{hi}]"


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")
