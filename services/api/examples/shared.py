"""What several examples share."""

from __future__ import annotations

import hashlib
from typing import Any

BEGUN, ENDED = "2026-03-01T09:00:00Z", "2026-03-01T09:14:30Z"
QUESTIONS = {"run": "demo", "iteration": 1}
ID = "demo/1/000042"


def sha256(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()


def estimate(value: float, lo: float, hi: float, n: int) -> dict[str, Any]:
    return {"value": value, "lo": lo, "hi": hi, "n": n}


def checkpoint(role: str, iteration: int, step: int, parent: str | None) -> dict[str, Any]:
    key = f"demo/{role}/{iteration}"
    files = {"path": f"/var/lib/coevo/checkpoints/{key}", "sha256": sha256(key), "files_removed": False}
    return {"id": key, "run": "demo", "role": role, "iteration": iteration, "step": step, **files, "parent": parent}


BASE = checkpoint("base", 0, 0, None)
CONFIG = {
    "kind": "co_evolve",
    "seed": 20260,
    "iterations": 3,
    "base_model": "micro",
    "dataset": {"candidates": 320, "votes": 10, "delta": 0.25},
}
VERDICTS = {"kept": 180, "too_easy": 90, "too_hard": 20, "no_majority": 10, "malformed": 12, "duplicate": 8}
KEPT = estimate(0.5625, 0.5077, 0.6158, 320)
TEXT = "5 * 3 = 15. 7 + 15 = 22. The answer is \\boxed{22}."
