"""Audits and alerts."""

from __future__ import annotations

from typing import Any

from services.api.examples.shared import ENDED, ID, QUESTIONS, estimate

_ALERT = {
    "id": "0123456789abcdef",
    "run": "demo",
    "iteration": 3,
    "rule": "sudden",
    "series": "label_accuracy",
    "over": "kept",
    "oracle": "exact",
    "severity": "critical",
    "value": 0.625,
    "lo": 0.5622,
    "hi": 0.6838,
    "n": 240,
    "reference": 0.88,
    "threshold": 0.1,
    "text": "label accuracy over kept by exact is 62.5% (n = 240), against 88.0% (n = 150) before: -25.5 points",
    "raised_at": ENDED,
    "acknowledged_at": None,
    "acknowledged_by": None,
    "note": "",
}
_ACCURATE = estimate(0.88, 0.8183, 0.9227, 150)
_ACCURACY = {"oracle": "human", "over": "kept", "population": 180}
_AGREEMENTS = {
    "oracles": [{"first": "exact", "second": "human", "kappa": estimate(0.92, 0.85, 0.99, 150)}],
    "annotators": [{"first": "ann", "second": "bob", "kappa": estimate(0.81, 0.7, 0.92, 145)}],
}

EXAMPLES: dict[str, Any] = {
    "AlertPage": {"items": [_ALERT], "next": None},
    "AlertDetail": {
        "alert": _ALERT,
        "deliveries": [
            {
                "alert": _ALERT["id"],
                "target": "hooks.example.org#1a2b3c4d",
                "attempts": 1,
                "next_at": ENDED,
                "delivered_at": "2026-03-01T09:14:31Z",
                "error": None,
            }
        ],
    },
    "AlertRow": {**_ALERT, "acknowledged_at": "2026-03-01T10:00:00Z", "acknowledged_by": "ann", "note": "Restarted."},
    "Sample": {
        **QUESTIONS,
        "oracle": "human",
        "drawn": 160,
        "settled": 150,
        "strata": [{"stratum": "kept 0.6-0.8", "size": 180, "drawn": 160, "audited": 150, "right": 132}],
        "measured": [{"over": "kept", "label_accuracy": _ACCURATE, "population": 180}],
        "annotators": {"ann": 158, "bob": 155},
    },
    "Agreements": _AGREEMENTS,
    "RunAudits": {
        "measured": [{"iteration": 1, **_ACCURACY, "figure": _ACCURATE, "frame": "sample"}],
        "estimated": [{"iteration": 2, **_ACCURACY, "figure": estimate(0.86, 0.78, 0.92, 150), "frame": None}],
        "checks": [
            {
                "oracle": "human",
                "over": "kept",
                "error": 0.02,
                "held": 1,
                "folds": [{"iteration": 1, "estimated": estimate(0.9, 0.84, 0.95, 140), "measured": _ACCURATE}],
            }
        ],
        **_AGREEMENTS,
    },
    "AlertGroup": {
        **{"run": "demo", "rule": "sudden", "severity": "critical", "alerts": 5},
        **{"first_iteration": 3, "last_iteration": 5, "raised_at": "2026-11-02T10:24:31Z"},
        "text": "label accuracy of the kept questions fell from 91% to 80%",
    },
    "Acknowledged": {"alerts": 5},
    "Labelling": {
        "annotator": "ann",
        "question": {
            "id": ID,
            "index": 42,
            "text": "What is 7 + 5 * 3?",
            "label": "22",
            "answers": ["22", "36"],
        },
        "progress": {"drawn": 160, "settled": 150, "annotated": 158, "skipped": 4},
    },
}
