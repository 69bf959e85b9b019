"""Which jobs EasyR1 can train, and the settings that it cannot follow."""

from __future__ import annotations

from typing import Any

import pytest

from core.challenger import RZeroChallenger
from core.methods import METHODS
from core.methods.srt import Rloo, Srt
from core.settings.parsing import parse_method
from core.settings.trainers import EasyR1Settings
from core.settings.training import Training
from trainers.easyr1.fit import SIGNALS, deviations, uneven, unfit

FITTING: dict[str, dict[str, Any]] = {name: {} for name, method in METHODS.items() if not method.signals - SIGNALS}
FITTING["evol_rl"] = {"entropy_coefficient": 0}
FITTING |= {name: {"loss_average": "token"} for name in FITTING if issubclass(METHODS[name], Srt | Rloo)}


@pytest.mark.parametrize("name", FITTING)
def test_a_fitting_method_has_no_fault(name: str) -> None:
    assert not [*unfit("solver", Training(), parse_method(name, FITTING[name]))]


def test_the_deviations_from_a_method_are_listed() -> None:
    always = {"vLLM samples the rollouts", "the entropy is estimated"}
    kl, average, votes = "prompts and rollouts that are dropped", "a micro batch's mean", "rollouts that only vote"
    expected = {"poly_epo": always, "rzero": {*always, kl, average}, "ttrl": {*always, kl, average, votes}}
    for name, beginnings in expected.items():
        sentences = deviations(Training(), parse_method(name))
        assert all(any(sentence.startswith(beginning) for sentence in sentences) for beginning in beginnings), sentences
        assert len(sentences) == len(beginnings)
    assert len(deviations(Training(prompts_per_update=64), parse_method("rzero"))) == 5


def test_the_challenger_s_reward_has_no_fault() -> None:
    for variant in ("paper", "official"):
        assert not [*unfit("challenger", Training(), RZeroChallenger(variant=variant))]


@pytest.mark.parametrize(
    ("name", "method", "training", "settings"),
    [
        ("evol_rl", {}, {}, ["reward.entropy_coefficient"]),
        ("scrl", {}, {}, ["reward.type"]),  # it needs the entropies of the rollouts
        ("srt", {"advantage": "zscore", "loss_average": "token"}, {}, ["reward.advantage"]),
        ("grpo", {"loss_average": "max_length", "kl_coefficient": 0.1}, {}, ["reward.loss_average"]),
        ("srt", {}, {}, ["reward.loss_average"]),
        ("rzero", {}, {"prompts_per_update": 48}, ["training.prompts_per_update"]),  # of 128
        ("poly_epo", {}, {"prompts_per_update": 64}, ["training.prompts_per_update"]),  # its average is "max_length"
        ("rzero", {}, {"sampling": {"temperature": 0}}, ["training.sampling.temperature"]),
    ],
)
def test_the_settings_that_easyr1_cannot_follow(
    name: str, method: dict[str, Any], training: dict[str, Any], settings: list[str]
) -> None:
    faults = unfit("solver", Training(**training), parse_method(name, method))
    assert [fault.setting for fault in faults] == [f"solver.{setting}" for setting in settings]


def test_a_challenger_with_a_mask_over_the_vocabulary_does_not_fit() -> None:
    faults = unfit("challenger", Training(), RZeroChallenger(), vocabulary_retention=0.8)
    assert [fault.setting for fault in faults] == ["challenger.vocabulary_retention"]


@pytest.mark.parametrize(("kl_coefficient", "settings"), [(0.01, ["solver.reward.kl_coefficient"]), (0, [])])
def test_another_reference_than_the_start_does_not_fit_where_the_kl_counts(
    kl_coefficient: float, settings: list[str]
) -> None:
    method = parse_method("rzero", {"kl_coefficient": kl_coefficient})
    assert [fault.setting for fault in unfit("solver", Training(), method, own_reference=True)] == settings


@pytest.mark.parametrize(
    ("prompts", "rollouts", "settings", "expected"),
    [
        (128, 5, {}, []),
        (128, 5, {"gpus_per_node": 3}, [("gpus_per_node", "3", 640)]),
        (128, 5, {"update_micro_batch": 3}, [("update_micro_batch", "3", 80)]),
        (128, 5, {"tensor_parallel": 3}, [("tensor_parallel", "3", 8)]),
        # EasyR1 divides a step's prompts before it repeats them; prompts x rollouts would be divisible here.
        (1, 8, {"gpus_per_node": 2, "update_micro_batch": 1}, [("gpus_per_node", "2", 1)]),
        (8, 64, {"gpus_per_node": 16, "update_micro_batch": 1}, [("gpus_per_node", "16", 8)]),
    ],
)
def test_batches_must_divide_evenly(
    prompts: int, rollouts: int, settings: dict[str, Any], expected: list[tuple[str, str, int]]
) -> None:
    faults = uneven(Training(prompts_per_step=prompts), rollouts, EasyR1Settings(**settings))
    assert [(fault.setting, fault.got, fault.expected) for fault in faults] == [
        (f"trainer.{name}", got, f"a divisor of {count}") for name, got, count in expected
    ]
