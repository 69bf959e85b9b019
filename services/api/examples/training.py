"""Rollouts of a training, with what they were rewarded for."""

from __future__ import annotations

from typing import Any

from services.api.examples.shared import ID, TEXT

_ROLLOUT = {
    "step": 2,
    "prompt": 5,
    "rollout": 3,
    "question_id": ID,
    "question": "What is 7 + 5 * 3?",
    "answer": "22",
    "label": "22",
    "agrees": True,
    "reward": 1.0,
    "parts": {},
    "advantage": 0.935,
    "tokens": 27,
    "finish_reason": "stop",
    "mean_entropy": 0.31,
}

EXAMPLES: dict[str, Any] = {
    "TrainingRolloutPage": {"items": [_ROLLOUT], "next": "Wy0xLjAsMiw1LDNd", "graded": True},
    "TrainingRolloutText": {**_ROLLOUT, "text": TEXT},
    "TrainingStep": {
        "step": 2,
        "prompts": 8,
        "rollouts": 64,
        "trained_on": 56,
        "reward_mean": 0.5625,
        "reward_min": 0.0,
        "reward_max": 1.0,
    },
}
