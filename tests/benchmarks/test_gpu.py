"""The measurement for GPUs runs on a CPU too, where it says nothing about memory."""

from __future__ import annotations

from benchmarks import gpu


def test_the_tiny_base_is_measured() -> None:
    figures = gpu.run("micro", "cpu", tokens=16)
    steps, engine = figures["trainer"]["steps"], figures["engine"]
    assert len(steps) == len(figures["trainer"]["seconds"]) == 3
    assert all(0 < step["response_length"] <= 16 and step["memory_gib"] is None for step in steps)
    assert engine["rows"] < engine["tokens"] <= 16 * engine["rows"]
