"""What a run taught, in words: one sentence that the figures bear, and the rest that one should know with it."""

from __future__ import annotations

from orchestrator.report.measures import Accuracy, Iteration, Measured, RunMeasures

_STAY = "\N{NO-BREAK SPACE}"  # an interval stays on the line of its figure


def percent(found: Measured) -> str:
    return f"{found.value:.1%}{_ends(found, 100, '{:.1f}')}"


def points(found: Measured, unit: str = f"{_STAY}points") -> str:
    """A difference of shares, in points with its sign."""
    return _minus(f"{100 * found.value:+.1f}{unit}{_ends(found, 100, '{:+.1f}')}")


def number(found: Measured) -> str:
    return _minus(f"{found.value:.2f}{_ends(found, 1, '{:.2f}')}")


def headline(measures: RunMeasures) -> str:
    """One sentence. It says that the Solver learned only when both pass@1 and greedy rose beyond their intervals:
    pass@1 alone rises also when a model grows surer of what it says."""
    scored = _scored(measures)
    if not scored:
        return _not_yet(measures)
    last, gain = scored[-1]
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
    """Sentences for below the headline: where it stood best, the vote, and the labels."""
    scored = _scored(measures)
    said = []
    if scored:
        last, gain = scored[-1]
        said.append(_levels(measures.iterations[0], last))
        said.append(f"The majority of {measures.config.evaluation.samples} samples moved by {points(gain.majority)}.")
    if measures.last_over_best is not None and measures.best is not None:
        said.append(_since_best(measures.last_over_best, measures.best))
    return [*said, *_labels(measures)]


def _scored(measures: RunMeasures) -> list[tuple[Iteration, Accuracy]]:
    return [(each, each.gain) for each in measures.iterations if each.gain]


def _not_yet(measures: RunMeasures) -> str:
    base = measures.iterations[0].accuracy
    if base is None:
        return "Nothing can be said yet: no model of this run has been evaluated."
    return (
        "Nothing can be said about learning yet: only the base model has been evaluated, with "
        f"{percent(base.pass_at_1)} pass@1 and {percent(base.greedy)} greedy on {base.pass_at_1.n:,} questions."
    )


def _levels(base: Iteration, last: Iteration) -> str:
    if base.accuracy is None or last.accuracy is None:
        return ""
    return (
        f"Held-out pass@1 went from {percent(base.accuracy.pass_at_1)} to {percent(last.accuracy.pass_at_1)}, greedy "
        f"from {percent(base.accuracy.greedy)} to {percent(last.accuracy.greedy)}."
    )


def _since_best(change: Accuracy, best: int) -> str:
    changed = f"pass@1 changed by {points(change.pass_at_1)} and greedy by {points(change.greedy)}"
    fell = _sign(change.pass_at_1) < 0 or _sign(change.greedy) < 0
    verb = "Some of it was lost again" if fell else "It held, as far as can be told"
    return f"{verb}: since iteration {best}, the best by pass@1 as seen afterwards, {changed}."


def _labels(measures: RunMeasures) -> list[str]:
    found = [(each.t, each.labels.accuracy_kept) for each in measures.iterations if each.labels]
    kept = [(t, value) for t, value in found if value is not None]
    if not kept:
        return []
    (first, before), (last, after) = kept[0], kept[-1]
    shown = f"{percent(before)} (n = {before.n:,}) in iteration {first}"
    if first == last:
        return [f"Of the kept pseudo-labels, {shown} were right by the oracle."]
    return [
        f"Of the kept pseudo-labels, {shown} were right by the oracle, and {percent(after)} (n = {after.n:,}) in "
        f"iteration {last}{_drift(before, after)}."
    ]


def _drift(before: Measured, after: Measured) -> str:
    if before.ci95 is None or after.ci95 is None:
        return ""
    if after.ci95[1] < before.ci95[0]:
        return ": they drifted away from the truth"
    return ": they came closer to the truth" if after.ci95[0] > before.ci95[1] else ": the intervals overlap"


def _sign(found: Measured) -> int:
    """1 or -1 when the interval leaves out 0, else 0."""
    if found.ci95 is None:
        return 0
    lo, hi = found.ci95
    return (lo > 0) - (hi < 0)


def _turns(t: int) -> str:
    return "one iteration" if t == 1 else f"{t} iterations"


def _ends(found: Measured, scale: float, form: str) -> str:
    if found.ci95 is None:
        return ""
    lo, hi = (form.format(scale * end) for end in found.ci95)
    return f"{_STAY}[{lo},{_STAY}{hi}]"


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")
