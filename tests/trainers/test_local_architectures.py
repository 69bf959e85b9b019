"""Every causal architecture of transformers: the trainer's log-probabilities are those of the model's own forward pass,
or the architecture is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from local_loops import run
from local_tiny import save_tiny, tiny_job
from tiny_architectures import NOT_MADE, REFUSED, tiny
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as ARCHITECTURES

from trainers.base import TrainError
from trainers.local.grpo import token_logprobs
from trainers.local.support import refuse_unsupported

TEMPERATURE = 0.7
# For each test run: those that change their logits after the output embedding, and some that are common.
QUICK = ["cohere", "gemma2", "granite", "hyperclovax", "minicpm3", "gemma4_text", "llama4_text", "gpt_oss", "qwen3_5"]
CHANGING = ["beam", "cohere2", "granitemoe", "granitemoeshared", "nanochat", "vaultgemma", "afmoe"]


def gap(model: PreTrainedModel) -> float:
    """The largest difference of a response token's log-probability, for three rows of different lengths in a batch."""
    generator = torch.Generator().manual_seed(1)
    lengths = [(3, 4), (7, 9), (1, 6)]  # of prompt and response
    rows = [torch.randint(3, 128, (sum(pair),), generator=generator) for pair in lengths]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.stack(
        [
            (torch.arange(ids.shape[1]) >= prompt) & (torch.arange(ids.shape[1]) < sum((prompt, response)))
            for prompt, response in lengths
        ]
    )
    with torch.no_grad():
        trained, _ = token_logprobs(model, ids, mask, TEMPERATURE)
        expected = torch.zeros_like(trained)
        for i, row in enumerate(rows):
            log_softmax = torch.log_softmax(model(input_ids=row[None]).logits[0].float() / TEMPERATURE, -1)
            expected[i, 1 : len(row)] = log_softmax[:-1].gather(-1, row[1:, None])[:, 0]
    return float((trained - expected * mask).abs().max())


def check(model_type: str) -> None:
    if model_type in NOT_MADE:
        pytest.skip(NOT_MADE[model_type])
    model = tiny(model_type)
    if model_type in REFUSED:
        with pytest.raises(TrainError, match=type(model).__name__):
            refuse_unsupported(model)
        return
    refuse_unsupported(model)
    assert gap(model) < 1e-4


@pytest.mark.parametrize("model_type", QUICK + CHANGING)
def test_an_architecture_is_trained_by_its_own_probabilities_or_refused(model_type: str) -> None:
    check(model_type)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_every_architecture_is_trained_by_its_own_probabilities_or_refused(model_type: str) -> None:
    check(model_type)


def test_a_job_of_an_architecture_that_scales_its_logits_is_trained(tmp_path: Path) -> None:
    steps: list[dict[str, float]] = []
    run(tiny_job(tmp_path, save_tiny(tmp_path / "start", tiny("granite"))), steps.append)
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert max(step["sampler_gap_max"] for step in steps) < 1e-4


def test_a_job_of_an_architecture_that_is_not_supported_ends_before_its_first_step(tmp_path: Path) -> None:
    """Falcon Mamba's configuration has no length of a context."""
    job = tiny_job(tmp_path, save_tiny(tmp_path / "start", tiny("falcon_mamba")))
    steps: list[object] = []
    with pytest.raises(TrainError, match="FalconMambaForCausalLM"):
        run(job, steps.append)
    assert not steps
