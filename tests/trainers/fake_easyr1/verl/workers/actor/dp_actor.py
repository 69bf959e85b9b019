"""A fake of EasyR1's actor: it logs the KL of its last micro batch."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def compute_kl(log_probs: Tensor, reference: Tensor) -> Tensor:
    return (log_probs - reference).abs()


def average_loss(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum()


class DataParallelPPOActor:
    def update_policy(self, data: list[tuple[Tensor, Tensor, Tensor]]) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        for log_probs, reference, mask in data:
            metrics["actor/kl_loss"] = average_loss(compute_kl(log_probs, reference), mask).item()
        return metrics
