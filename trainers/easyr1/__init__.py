"""EasyR1 (github.com/hiyouga/EasyR1, Apache-2.0) as a trainer: its configuration, data and reward made from a
`TrainJob`. It runs in an environment of its own, so nothing here imports it."""

from __future__ import annotations

PINNED = "b44b311"  # the commit of EasyR1 that the contract tests and docs/gpu.md refer to
