"""The guard's signals, worked out by hand on the figures of each step."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from core.statistics.decline import Fall
from core.statistics.guard import (
    Action,
    Guard,
    Signal,
    TrainingHistory,
    alarm_if,
    ends_training,
    iteration_alarms,
    step_alarms,
    strongest,
)

GUARD = Guard(window=2)


def steps(**figures: list[float]) -> list[dict[str, float]]:
    """The metrics of each step, from lists of equal length."""
    count = len(next(iter(figures.values())))
    return [{"step": i + 1, **{name: values[i] for name, values in figures.items()}} for i in range(count)]


def signals(metrics: list[dict[str, float]], guard: Guard = GUARD) -> list[str]:
    return [alarm.signal for alarm in step_alarms(metrics, guard)]


def test_rising_agreement_with_a_high_kl_is_hacking() -> None:
    # SRT 4.1.1. Medians over two steps: the majority's share is 0.5 at first and 0.7 now; the KL is 0.25.
    [alarm] = step_alarms(steps(**AGREEMENT), GUARD)
    assert (alarm.signal, alarm.action, alarm.step) == ("hacking", "warn", 5)
    assert (alarm.value, alarm.threshold) == (pytest.approx(0.25), 0.15)
    for words in ("step 5", "70%", "50%", "0.25 nats per token"):
        assert words in alarm.text


AGREEMENT = {"majority_share": [0.4, 0.6, 0.6, 0.65, 0.75], "kl": [0, 0.01, 0.1, 0.2, 0.3]}


@pytest.mark.parametrize(
    ("figures", "settings", "expected"),
    [
        (AGREEMENT, {}, ["hacking"]),
        # agreement has not risen since the beginning
        (AGREEMENT | {"majority_share": [0.4, 0.6, 0.6, 0.5, 0.58]}, {}, []),
        # agreement rises with a low KL: the Solver learns
        ({"majority_share": [0.4, 0.6, 0.8, 0.95, 0.95], "kl": [0, 0.01, 0.1, 0.1, 0.1]}, {}, []),
        # one odd step
        ({"majority_share": [0.4, 0.6, 0.9, 0.9, 0.9], "kl": [0, 0.01, 0.1, 0.1, 2.2]}, {"window": 3}, []),
        ({"same_label_share": [0.05, 0.2, 0.5]}, {}, ["one_answer"]),  # the median of two steps is 0.35
        ({"same_label_share": [0.05, 0.2, 0.3]}, {}, []),
        ({"same_label_share": [0.05, 0.2, 0.3]}, {"one_answer_share": 0.25}, ["one_answer"]),
        ({"same_label_share": [0.9, 0.9]}, {"actions": {"one_answer": "ignore"}}, []),
        # the first entropy is 0.5; a tenth of it is 0.05
        ({"entropy": [0.6, 0.4, 0.1, 0.04, 0.05]}, {}, ["no_entropy"]),
        ({"entropy": [0.6, 0.4, 0.1, 0.06, 0.05]}, {}, []),
        # of 200 labels 150 were right in the first two steps, 100 are in the last two
        ({"label_accuracy": [0.7, 0.8, 0.7, 0.4, 0.6], "labels_checked": [100] * 5}, {}, ["wrong_labels"]),
        # a fall of 2.3 standard errors, which may be chance
        ({"label_accuracy": [0.7, 0.8, 0.7, 0.4, 0.6], "labels_checked": [20] * 5}, {}, []),
        # a significant fall, but only of six points
        ({"label_accuracy": [0.75, 0.75, 0.7, 0.7, 0.68], "labels_checked": [10_000] * 5}, {}, []),
        ({"label_accuracy": [0.4, 0.6, 0.7, 0.7, 0.8], "labels_checked": [100] * 5}, {}, []),  # a rise
        ({"label_accuracy": [0] * 5, "labels_checked": [0] * 5}, {}, []),
        ({"step": [1]}, {}, []),  # without any figure
        ({"majority_share": [0.99], "same_label_share": [0.1], "entropy": [0.5], "kl": [0.0]}, {}, []),
    ],
)
def test_the_signals_of_a_training_s_steps(
    figures: dict[str, list[float]], settings: dict[str, Any], expected: list[str]
) -> None:
    assert signals(steps(**figures), Guard(**{"window": 2, **settings})) == expected


def test_a_rise_is_measured_from_the_first_steps_of_the_whole_training() -> None:
    """A later job of a training begins where the one before ended, and its own steps show no rise."""
    later = steps(majority_share=[0.7, 0.7, 0.7], entropy=[0.04, 0.04, 0.04], kl=[0.3, 0.3, 0.3])
    assert signals(later) == []
    first = steps(majority_share=[0.5, 0.5], entropy=[0.5, 0.5])
    assert [alarm.signal for alarm in step_alarms(later, GUARD, TrainingHistory(tuple(first)))] == [
        "hacking",
        "no_entropy",
    ]


def test_a_job_that_continues_a_training_can_raise_an_alarm_at_its_first_step() -> None:
    last = steps(same_label_share=[0.1, 0.4])
    job = steps(same_label_share=[0.5])
    assert signals(job) == []
    [alarm] = step_alarms(job, GUARD, TrainingHistory(last=tuple(last)))
    assert (alarm.signal, alarm.value, alarm.step) == ("one_answer", pytest.approx(0.45), 1)


def test_a_fall_of_label_accuracy_is_measured_in_standard_errors() -> None:
    # Of 200 labels 150 were right in the first two steps, 100 are in the last two: 0.75 to 0.5, pooled 0.625, standard
    # error sqrt(0.625 * 0.375 * 2/200) = 0.0484, so the fall is 5.2 standard errors.
    fallen = steps(label_accuracy=[0.7, 0.8, 0.7, 0.4, 0.6], labels_checked=[100] * 5)
    [alarm] = step_alarms(fallen, GUARD)
    assert (alarm.signal, alarm.action, alarm.step) == ("wrong_labels", "warn", 5)
    assert (alarm.value, alarm.threshold) == (pytest.approx(0.5), pytest.approx(0.75 - 3.5 * 0.0484123))
    for words in ("step 5", "50%", "75%", "n = 200"):
        assert words in alarm.text


def test_an_iteration_s_signals_are_decline_ill_posed_and_repetition() -> None:
    guard = Guard(actions={"decline": "stop", "ill_posed": "pause", "repetition": "roll_back"})
    assert iteration_alarms(guard, None, {"ill_posed_share": 0.2, "repetition_share": 0.5}) == []
    ill, fall = {"ill_posed_share": 0.25, "repetition_share": 0.75}, Fall(0.4, 0.52, 1_020, 0.0003, 0.005)
    assert [(alarm.signal, alarm.action) for alarm in iteration_alarms(guard, fall, ill)] == [
        ("decline", "stop"),
        ("ill_posed", "pause"),
        ("repetition", "roll_back"),
    ]
    [decline, *shares] = (alarm.text for alarm in iteration_alarms(guard, fall, ill))
    assert ["25%" in shares[0], "75%" in shares[1]] == [True, True]
    for words in ("40.0%", "52.0%", "1,020 questions", "p = 0.0003", "0.005"):
        assert words in decline


@pytest.mark.parametrize(
    ("fall", "is_alarm"),
    [
        (Fall(0.4, 0.5, 30, 0.001, 0.001), True),
        (Fall(0.4, 0.5, 30, 0.002, 0.001), False),  # chance explains it
        (Fall(0.48, 0.5, 9_000, 0.0, 0.001), False),  # by two points only
        (Fall(0.5, 0.4, 30, 1.0, 0.001), False),
    ],
)
def test_a_decline_is_a_fall_that_is_large_enough_and_too_large_for_chance(fall: Fall, is_alarm: bool) -> None:
    assert bool(iteration_alarms(Guard(), fall)) == is_alarm


def test_of_several_alarms_the_strongest_action_counts() -> None:
    shares = {"ill_posed_share": 1.0, "repetition_share": 1.0}
    alarms = iteration_alarms(Guard(actions={"repetition": "roll_back"}), figures=shares)
    assert strongest(alarms) == "roll_back"
    assert strongest([]) == "ignore"
    expected: dict[Action, bool] = {"ignore": False, "warn": False, "pause": True, "roll_back": True, "stop": True}
    assert {action: ends_training(action) for action in expected} == expected


@pytest.mark.parametrize("signal", get_args(Signal))
def test_every_signal_says_with_its_threshold_when_it_is_an_alarm(signal: Signal) -> None:
    units = {"hacking": "0.125 nats", "no_entropy": "0.125 nats", "out_of_reach": "0.125 operations"}
    assert units.get(signal, "12.5") in alarm_if(signal, 0.125)
