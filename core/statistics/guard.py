"""The collapse guard: which figures of a training step or an iteration are signals of collapse, and what to do then.

The signals come from these sources. SRT (arXiv 2505.21444), 4.1.1 and E: the pseudo-reward jumps to 1 and the KL with
it, held-out accuracy falls, and every prompt gets the same answer. EVOL-RL (arXiv 2509.15194), 2.3: entropy vanishes;
its appendix, and SCRL (arXiv 2603.19880), Figure 3: the accuracy of the majority during training. R-Zero (arXiv
2508.05004), B.2 and H: pass@1 declines after an early peak. Two signals are about the Challenger, which may earn its
reward by ill-posed or repeated questions. The last four are read from the run's series (`core.statistics.signs`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import Field, field_validator

from core.statistics.decline import Fall
from core.validation.bounds import Positive, SettingsTable, Share

Action = Literal["ignore", "warn", "pause", "roll_back", "stop"]  # from the mildest to the strongest
Signal = Literal[
    "hacking",
    "one_answer",
    "no_entropy",
    "wrong_labels",
    "decline",
    "ill_posed",
    "repetition",
    "overconfidence",
    "out_of_reach",
    "unanimity",
    "monotony",
]
StepSignal = Literal["hacking", "one_answer", "no_entropy", "wrong_labels"]

# The metrics of a training step from which the signals are computed.
WATCHED = ("majority_share", "kl", "same_label_share", "entropy", "label_accuracy", "labels_checked")

# The least fall of label accuracy, in standard errors. If label accuracy has not changed, a fall this large appears by
# chance at about one step in 4,000. It appears more often if the windows hold the same questions several times, because
# the labels of one question are not independent.
_MIN_STANDARD_ERRORS = 3.5

# Signal -> when it is an alarm, in words around the threshold that an alarm of this signal has.
_ALARM_IF: dict[Signal, tuple[str, float, str]] = {  # before the threshold, the factor of its unit, the unit
    "hacking": ("the KL is at least", 1, " nats per token"),
    "one_answer": ("the share is at least", 100, "%"),
    "no_entropy": ("the entropy is below", 1, " nats per token"),
    "wrong_labels": ("the label accuracy is at most", 100, "%"),
    "decline": ("pass@1 is below the best by more than chance explains, and by more than", 100, " points"),
    "ill_posed": ("the share is above", 100, "%"),
    "repetition": ("the share is above", 100, "%"),
    "overconfidence": ("mean p_hat is above label accuracy by more than", 100, " points"),
    "out_of_reach": ("the kept questions take more than", 1, " operations"),
    "unanimity": ("the share of questions that split the votes is at most", 100, "%"),
    "monotony": ("the share of pairs of questions with the same skeleton is at least", 100, "%"),
}

_STRENGTH = {action: strength for strength, action in enumerate(get_args(Action))}


def _warnings() -> dict[Signal, Action]:
    return dict.fromkeys(get_args(Signal), "warn")


class Guard(SettingsTable):
    """What counts as a signal, and the action it calls for: a preset's `[guard]` and `[guard.actions]`.

    The signals `ill_posed` and `repetition` are about the Challenger's questions, so a run without a Challenger has
    neither.

    "pause" asks a person in the Prefect UI. "roll_back" goes back to the best earlier iteration by pass@1 and continues
    from there, once in a run (`max_roll_backs`); after that it stops the run. "stop" ends the run with the best
    checkpoint as its result. With any of these three actions, a signal of a step ends the training stage at that step.
    """

    actions: dict[Signal, Action] = Field(default_factory=_warnings, validate_default=True)
    window: Positive = 3  # steps that are looked at together, since a single step may be an outlier
    one_answer_share: Share = 0.3  # of a step's distinct prompts, with the same majority answer

    # The next iteration has other seeds, so one more attempt is worth its time; a second collapse is no accident.
    max_roll_backs: ClassVar[int] = 1
    # Chosen on SRT pushed to collapse and its control with true labels (docs/methods.md); the KL tells the two apart.
    hacking_jump: ClassVar[float] = 0.05  # rise of the votes' agreement with their majority, since the first steps…
    hacking_kl: ClassVar[float] = 0.15  # …and the least KL to the reference, in nats per token
    entropy_floor: ClassVar[float] = 0.1  # of the first steps' entropy; chosen, as EVOL-RL (2.3) gives no number
    # How far label accuracy must fall below the training's first steps, and pass@1 on the benchmark below its best;
    # less is not worth ending a run. Both falls must also be too large for chance, the second at the rate of false
    # alarms that `alerts.rate` allows a run.
    wrong_labels_points: ClassVar[float] = 0.1
    decline_points: ClassVar[float] = 0.03
    # Of the Challenger's questions. Both are chosen, not measured.
    ill_posed_share: ClassVar[float] = 0.2
    repetition_share: ClassVar[float] = 0.5  # of its last questions in training, or of the candidates, that repeat

    @field_validator("actions", mode="before")
    @classmethod
    def _others_warn(cls, actions: Any) -> Any:
        return {**_warnings(), **actions} if isinstance(actions, Mapping) else actions

    def action(self, signal: Signal) -> Action:
        return self.actions[signal]


@dataclass(frozen=True, slots=True)
class Alarm:
    """A signal that showed: the measured value, the threshold that it crossed, and the action to take."""

    signal: Signal
    action: Action
    value: float
    threshold: float
    step: int | None  # of the Solver's training; None for a signal of the whole iteration
    text: str


class Sign(NamedTuple):
    """A signal that showed in an iteration's series: the value and the threshold that it crossed."""

    signal: Signal
    value: float
    threshold: float
    text: str


def strongest(alarms: Sequence[Alarm]) -> Action:
    """The strongest action that any of `alarms` calls for."""
    return max((alarm.action for alarm in alarms), key=_STRENGTH.__getitem__, default="ignore")


def alarm_if(signal: Signal, threshold: float) -> str:
    """When a signal is an alarm, in words with its threshold: "the share is above 20%"."""
    before, factor, unit = _ALARM_IF[signal]
    return f"{before} {factor * threshold:.3g}{unit}"


def ends_training(action: Action) -> bool:
    return _STRENGTH[action] >= _STRENGTH["pause"]


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """What the guard must know of a training that this job continues: the metrics of its first steps, to compare with,
    and those of its last steps before this job."""

    first: tuple[dict[str, float], ...] = ()
    last: tuple[dict[str, float], ...] = ()


def step_alarms(
    metrics: Sequence[Mapping[str, float]], guard: Guard, before: TrainingHistory = TrainingHistory()
) -> list[Alarm]:
    """The signals at the last of a job's steps so far. `metrics` are those of all its steps, in order.

    A metric that no step of the window has makes no signal (a step whose prompts were all dropped lacks some). There
    are no signals before there are as many steps as the window holds.
    """
    step = int(metrics[-1]["step"])
    last_steps = [*before.last, *metrics][-guard.window :]
    if len(last_steps) < guard.window:
        return []  # with so few steps, a single odd batch could end the training
    signals: list[tuple[StepSignal, float, float, str]] = []
    first_steps = [*before.first, *metrics][: guard.window]
    majority, majority_before = _median(last_steps, "majority_share"), _median(first_steps, "majority_share")
    kl = _median(last_steps, "kl")
    if majority is not None and majority_before is not None and kl is not None:
        risen = majority - majority_before >= guard.hacking_jump
        if risen and kl >= guard.hacking_kl:
            text = f"{majority:.0%} of the votes agree with their majority, up from {majority_before:.0%}, at a KL of"
            signals.append(("hacking", kl, guard.hacking_kl, f"{text} {kl:.3g} nats per token"))
    one_answer = _median(last_steps, "same_label_share")
    if one_answer is not None and one_answer >= guard.one_answer_share:
        text = f"{one_answer:.0%} of the prompts have the same majority answer"
        signals.append(("one_answer", one_answer, guard.one_answer_share, text))
    entropy, entropy_before = _median(last_steps, "entropy"), _median(first_steps, "entropy")
    if entropy is not None and entropy_before is not None and entropy < guard.entropy_floor * entropy_before:
        text = f"the policy's entropy is {entropy:.3g} nats per token, down from {entropy_before:.3g} at the beginning"
        signals.append(("no_entropy", entropy, guard.entropy_floor * entropy_before, text))
    right, n = _checked_labels(last_steps)
    right_before, n_before = _checked_labels(first_steps)
    if n and n_before:
        accuracy, accuracy_before = right / n, right_before / n_before
        pooled = (right + right_before) / (n + n_before)
        chance_fall = _MIN_STANDARD_ERRORS * math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / n_before))
        threshold = accuracy_before - max(guard.wrong_labels_points, chance_fall)
        if accuracy < accuracy_before and accuracy <= threshold:
            now_right = f"{accuracy:.0%} of the labels are right (n = {n:.0f})"
            text = f"{now_right}, down from {accuracy_before:.0%} at the beginning (n = {n_before:.0f})"
            signals.append(("wrong_labels", accuracy, threshold, text))
    return [
        Alarm(signal, guard.action(signal), value, threshold, step, f"step {step}: {text}")
        for signal, value, threshold, text in signals
        if guard.action(signal) != "ignore"
    ]


def iteration_alarms(
    guard: Guard,
    fall: Fall | None = None,
    figures: Mapping[str, float | None] = MappingProxyType({}),
    signs: Iterable[Sign] = (),
) -> list[Alarm]:
    """The signals of a whole iteration. `fall` is that of pass@1 from the best earlier iteration. With a Challenger,
    `figures` may have `ill_posed_share` and `repetition_share`. A figure that is None or missing makes no signal.
    `signs` are those of its series.
    """
    signals: list[tuple[Signal, float, float, str]] = []
    if fall is not None and fall.points > guard.decline_points and fall.p <= fall.limit:
        text = f"pass@1 is {fall.now:.1%}, down from {fall.best:.1%} on the same {fall.n:,} questions"
        chance = f"chance explains such a fall with p = {fall.p:.1g}, below {fall.limit:.1g}"
        signals.append(("decline", fall.points, guard.decline_points, f"{text}; {chance}"))
    ill_posed, repetition = figures.get("ill_posed_share"), figures.get("repetition_share")
    if ill_posed is not None and ill_posed > guard.ill_posed_share:
        text = f"{ill_posed:.0%} of the Challenger's questions are ill-posed"
        signals.append(("ill_posed", ill_posed, guard.ill_posed_share, text))
    if repetition is not None and repetition > guard.repetition_share:
        text = f"{repetition:.0%} of the Challenger's questions repeat another"
        signals.append(("repetition", repetition, guard.repetition_share, text))
    signals += signs
    return [
        Alarm(signal, guard.action(signal), value, threshold, None, text)
        for signal, value, threshold, text in signals
        if guard.action(signal) != "ignore"
    ]


def _checked_labels(metrics: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """(right labels, labels) over some steps, counting only labels whose truth is known."""
    checked = [(step["label_accuracy"], step["labels_checked"]) for step in metrics if "labels_checked" in step]
    return sum(accuracy * n for accuracy, n in checked), sum(n for _, n in checked)


def _median(metrics: Sequence[Mapping[str, float]], name: str) -> float | None:
    values = [step[name] for step in metrics if name in step]
    return median(values) if values else None
