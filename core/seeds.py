"""Seeds are derived from keys, so that a resumed run draws the same random numbers as an uninterrupted one."""

from __future__ import annotations

import hashlib


def seed_for(run_seed: int, *key: str | int) -> int:
    """A 63-bit seed for `key` (stage, iteration, step, index, …) in the run that has `run_seed`."""
    text = "\x1f".join(map(str, (run_seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
