"""`coevo bench sampler`: the work that the processor has to do, worked out by hand."""

from __future__ import annotations

from transformers import AutoModelForCausalLM

from benchmarks.sampler import _Size, _Speeds
from orchestrator.installation.home import MICRO_MODEL

_SIZE = _Size(weights=1000, output=200, layers=2, heads=4, cached_heads=1, width=8)


def test_the_work_of_two_prompts_by_hand() -> None:
    # Prompts of 10 and 4 tokens; the first has answers of 2 and 6 tokens, the second one of 4. Earlier tokens that the
    # model attends to: the answers to 10 x 2 + 2 = 22, 10 x 6 + 18 = 78 and 4 x 4 + 8 = 24, the prompts to
    # 50 + 8 = 58: together 182.
    flops, moved = _SIZE.work([10, 4], [[2, 6], [4]], rows=3)
    assert flops == 2 * 1200 * 12 + 2 * 1000 * 14 + 4 * 2 * 4 * 8 * 182  # no output layer while it reads a prompt
    assert moved == 4 * (1200 * 12 / 3 + 2 * 2 * 1 * 8 * 182)  # four steps of three rows; keys and values of one head


def test_more_rows_at_once_read_the_weights_less_often_and_compute_as_much() -> None:
    few, many = (_SIZE.work([1], [[1] * 8], rows) for rows in (1, 8))
    assert few[0] == many[0]
    assert few[1] - many[1] == 4 * 1200 * (8 - 1)


def test_the_least_time_is_that_of_the_slower_of_arithmetic_and_memory() -> None:
    speeds = _Speeds(flops=100.0, bytes=10.0)
    assert speeds.limit(400, 20) == (4.0, "arithmetic")
    assert speeds.limit(100, 20) == (2.0, "memory")


def test_the_size_of_the_tiny_model() -> None:
    model = AutoModelForCausalLM.from_pretrained(MICRO_MODEL)
    size = _Size.of(model)
    assert (size.layers, size.heads, size.cached_heads, size.width) == (4, 3, 1, 32)
    assert size.output == 512 * 96
    # The model ties its embedding table to its output layer: the parameters count it once.
    assert size.weights + size.output == sum(p.numel() for p in model.parameters())
