"""The measurement for GPUs runs on a CPU too, where it says nothing about memory."""

from __future__ import annotations

import pytest

from benchmarks import gpu


def test_the_tiny_base_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find_spec", lambda _: None)  # vLLM takes a minute to start; its live tests are elsewhere
    figures = gpu.run("micro", tokens=16)
    for trainer in figures["trainer"].values():
        assert len(trainer["steps"]) == len(trainer["seconds"]) == 3
        assert all(0 < step["response_length"] <= 16 and step["memory_gib"] is None for step in trainer["steps"])
        assert all(0 < step["flops_utilisation"] < 0.01 for step in trainer["steps"])
    assert figures["trainer"].keys() == gpu.VARIANTS.keys()
    engine = figures["engine"]
    assert engine["rows"] < engine["tokens"] <= 16 * engine["rows"]
