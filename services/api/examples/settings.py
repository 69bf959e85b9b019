"""Configurations of runs, and their comparison."""

from __future__ import annotations

from typing import Any

from services.api.examples.shared import ENDED

_SETTING = {
    "name": "dataset.candidates",
    "value": 320,
    "source": "preset",
    "default": 8000,
    "differs": True,
    "paper": {"value": "8,000", "reference": "2.3", "same": False},
}

EXAMPLES: dict[str, Any] = {
    "Configuration": {
        "run": "demo",
        "preset": "demo",
        "edited": ["solver.training.steps"],
        "settings": [_SETTING],
        "toml": 'kind = "co_evolve"\n\n[dataset]\ncandidates = 320\n',
    },
    "SettingsComparison": {
        "runs": ["demo", "third"],
        "settings": [{"name": "solver.reward.type", "values": {"demo": "rzero", "third": "evol_rl"}}],
        "groups": [
            {"label": "solver.reward.type = rzero", "runs": ["demo"]},
            {"label": "solver.reward.type = evol_rl", "runs": ["third"]},
        ],
    },
    "ComparedFigure": {
        "name": "kl",
        "text": "The Solver's divergence from its reference, per token",
        "unit": "nats",
        "by_iteration": True,
    },
    "LabelledCurve": {
        "label": "solver.reward.type = rzero",
        "runs": ["demo", "demo-2"],
        "points": [{"x": 1, "value": 0.05, "lo": 0.01, "hi": 0.09, "n": 2}],
    },
    "LatestFigures": {
        "run": "third",
        "best_iteration": 2,
        "figures": [
            {
                "name": "label_accuracy",
                "last": {"x": 3, "value": 0.8, "lo": 0.7289, "hi": 0.8561, "n": 150},
                "best": {"x": 2, "value": 0.84, "lo": 0.7729, "hi": 0.8901, "n": 150},
                "difference": {"x": 3, "value": -0.08, "lo": -0.1625, "hi": 0.0037, "n": 150},
            }
        ],
    },
    "NotesOfRun": {
        "run": "demo",
        "tags": ["baseline"],
        "note": "The first run with the new filter.",
        "noted_by": "ann",
        "noted_at": ENDED,
    },
    "TagCount": {"tag": "baseline", "runs": 2},
}
