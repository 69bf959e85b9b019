"""Which jobs EasyR1 can train: others are refused before anything starts, with the setting's name and the reason."""

from __future__ import annotations

from typing import Any

import pytest

from core.methods import METHODS
from core.methods.rzero import ChallengerReward
from core.methods.srt import Rloo, Srt
from core.settings.parsing import parse_method
from core.settings.trainers import EasyR1Settings
from core.settings.training import Training
from trainers.base import TrainError
from trainers.easyr1.fit import SIGNALS, deviations, refuse_layout, refuse_unfit

FITTING: dict[str, dict[str, Any]] = {name: {} for name, method in METHODS.items() if not method.signals - SIGNALS}
FITTING["evol_rl"] = {"entropy_coefficient": 0}
FITTING |= {name: {"loss_average": "token"} for name in FITTING if issubclass(METHODS[name], Srt | Rloo)}


@pytest.mark.parametrize("name", FITTING)
def test_a_fitting_method_is_accepted(name: str) -> None:
    refuse_unfit("solver", Training(), parse_method(name, FITTING[name]))


def test_the_deviations_from_a_method_are_listed() -> None:
    always = {"vLLM samples the rollouts", "the entropy is estimated"}
    kl, average, votes = "prompts that are dropped", "a micro batch's mean", "rollouts that only vote"
    expected = {"poly_epo": always, "rzero": {*always, kl, average}, "ttrl": {*always, kl, average, votes}}
    for name, beginnings in expected.items():
        sentences = deviations(Training(), parse_method(name))
        assert all(any(sentence.startswith(beginning) for sentence in sentences) for beginning in beginnings), sentences
        assert len(sentences) == len(beginnings)
    assert len(deviations(Training(prompts_per_update=64), parse_method("rzero"))) == 5


def test_the_challenger_s_reward_is_accepted() -> None:
    for variant in ("paper", "official"):
        refuse_unfit("challenger", Training(), ChallengerReward(variant=variant))


@pytest.mark.parametrize(
    ("name", "method", "training", "reason"),
    [
        ("evol_rl", {}, {}, "entropy_coefficient: expected 0, got 0.003; EasyR1 has no entropy bonus"),
        (
            "scrl",
            {},
            {},
            "which needs mean_entropy; EasyR1's .* it can provide clusters, embeddings, label",
        ),
        ("srt", {"advantage": "zscore"}, {}, "advantage: expected 'rloo', got 'zscore'; kl_in = 'reward' needs"),
        (
            "grpo",
            {"loss_average": "max_length", "kl_coefficient": 0.1},
            {},
            "loss_average: .*; or a kl_coefficient of 0",
        ),
        ("srt", {}, {}, "loss_average: expected 'token' or 'sequence', got 'max_length'"),
        ("rzero", {}, {"prompts_per_update": 48}, "expected a divisor of prompts_per_step = 128, got 48"),
        (
            "poly_epo",
            {},
            {"prompts_per_update": 64},
            "expected all of a step's prompts, with loss_average 'max_length'",
        ),
        ("rzero", {}, {"sampling": {"temperature": 0}}, "sampling.temperature: expected more than 0"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_with_the_reason(
    name: str, method: dict[str, Any], training: dict[str, Any], reason: str
) -> None:
    with pytest.raises(
        TrainError, match=rf"(?s)solver.reward {name}: EasyR1 cannot .*use trainer.type = 'local', or change:.*{reason}"
    ):
        refuse_unfit("solver", Training(**training), parse_method(name, method))


def test_another_reference_than_the_start_is_refused_where_the_kl_counts() -> None:
    method = parse_method("rzero")
    with pytest.raises(
        TrainError,
        match=r"kl_coefficient: expected 0, got 0\.01; after the first round, EasyR1 measures",
    ):
        refuse_unfit("solver", Training(), method, own_reference=True)
    refuse_unfit("solver", Training(), parse_method("rzero", {"kl_coefficient": 0}), own_reference=True)


@pytest.mark.parametrize(("prompts", "rollouts", "gpus"), [(1, 8, 2), (8, 64, 16)])
def test_a_step_of_fewer_prompts_than_gpus_is_refused(prompts: int, rollouts: int, gpus: int) -> None:
    """EasyR1 divides the prompts among the GPUs before it repeats them; the number of rollouts would be divisible."""
    settings = EasyR1Settings(gpus_per_node=gpus, update_micro_batch=1)
    with pytest.raises(
        TrainError,
        match=rf"trainer\.gpus_per_node: expected a divisor of {prompts}, got {gpus}; EasyR1 divides a step's prompts",
    ):
        refuse_layout(Training(prompts_per_step=prompts), rollouts, settings)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"gpus_per_node": 3},
            r"trainer\.gpus_per_node: expected a divisor of 640, got 3; EasyR1 divides 128 prompts x 5 rollouts of an",
        ),
        ({"update_micro_batch": 3}, "trainer.update_micro_batch: expected a divisor of 80, got 3"),
        ({"tensor_parallel": 3}, "trainer.tensor_parallel: expected a divisor of 8, got 3"),
    ],
)
def test_batches_that_do_not_divide_are_refused(settings: dict[str, Any], complaint: str) -> None:
    refuse_layout(Training(), 5, EasyR1Settings())
    with pytest.raises(TrainError, match=complaint):
        refuse_layout(Training(), 5, EasyR1Settings(**settings))
