"""Evaluations, their records, and comparisons."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from core.statistics.estimates import Estimate
from core.statistics.seeds import Difference, SeedTest
from services.api.examples.shared import BEGUN, ENDED, TEXT, estimate, sha256
from services.comparison_remarks import remarks

_SAMPLING = {"temperature": 1.0, "top_p": 0.99, "top_k": None, "max_tokens": 4096}
_EVALUATION = {
    "id": "5f0c3d1e9a7b2468",
    "run": None,
    "checkpoint_id": "demo/solver/1",
    "model": "demo/solver/1",
    "benchmark": "aime24",
    "manifest": {
        "model": {"checkpoint": "demo/solver/1", "sha256": "0" * 64},
        "benchmark": {"name": "aime24", "title": "AIME 2024", "sha256": "1" * 64, "questions": 30},
    },
    "seconds": 41.5,
    "created_at": BEGUN,
    "finished_at": ENDED,
}
_ACCURACY = {
    "pass_at_1": estimate(0.4, 0.2406, 0.5594, 30),
    "greedy": estimate(0.5, 0.3315, 0.6685, 30),
    "majority": estimate(0.4, 0.2459, 0.5768, 30),
}


_NO_FILTER = Difference(
    value=-0.035,
    over_seeds=SeedTest(Estimate(-0.035, -0.226, 0.156, 2), paired=True, p=None, sign_p=None),
    over_questions=Estimate(-0.035, -0.056, -0.014, 1020),
    by_seed=[-0.02, -0.05],
)


def _point(iteration: int, values: list[float], lo: float, hi: float) -> dict[str, Any]:
    mean = sum(values) / len(values)
    interval = estimate(mean, lo, hi, len(values))
    return {"iteration": iteration, "mean": mean, "interval": interval, "values": values}


def _answer(index: int, answer: str, answer_class: int | None, verdict: str) -> dict[str, Any]:
    counts = {"tokens": 812, "finish_reason": "stop"}
    named = {"item_id": "aime24/0", "sample_index": index, "answer": answer}
    return {**named, "answer_class": answer_class, "verdict": verdict, **counts}


_JUDGED = {"item_id": "aime24/0", "sample_index": 1, "judge": "judge_gpt_4o_equivalence", "verdict": "wrong"}
_RECORD = {
    "question": {"id": "aime24/0", "problem": "Every morning Aya …", "answer": "204", "level": None, "subject": None},
    "result": {
        "item_id": "aime24/0",
        "level": None,
        "samples": 2,
        "correct": 1,
        "greedy_correct": True,
        "majority_correct": True,
    },
    "answers": [
        _answer(-1, "204", None, "equal"),
        _answer(0, "204", 0, "equal"),
        _answer(1, "210", 1, "unequal"),
    ],
    "judged": [_JUDGED],
    "texts": [TEXT, TEXT, TEXT],
}

EXAMPLES: dict[str, Any] = {
    "Headline": {
        "sentence": "The Solver learned: +12.1\u00a0points\u00a0[+9.0,\u00a0+15.1] for pass@1 and "
        "+10.4\u00a0points\u00a0[+5.2,\u00a0+15.5] for greedy decoding against the base model after 3 iterations, over "
        "the same 240 questions.",
        "details": ["The majority of 8 samples moved by +9.2\u00a0points\u00a0[+4.1,\u00a0+14.2]."],
        "decisions": ["The run went on after iteration 2, as a person decided."],
    },
    "Evaluation": {
        "checkpoint": "demo/solver/1",
        "benchmark": "micro",
        "samples": 8,
        "pass_at_1": estimate(0.55, 0.5005, 0.5995, 240),
        "greedy": estimate(0.7, 0.6392, 0.7545, 240),
        "majority": estimate(0.625, 0.5622, 0.6838, 240),
    },
    "MatrixCell": {
        "oracle": "exact",
        "questions": 1,
        "solver": "demo/solver/1",
        "over": "all",
        "figure": estimate(0.7, 0.6333, 0.7592, 200),
    },
    "ListedEvaluation": {**_EVALUATION, **_ACCURACY},
    "EvaluationFigures": {
        "evaluation": _EVALUATION,
        "questions": 30,
        "samples": 2,
        **_ACCURACY,
        "curve": [
            {
                "k": 1,
                "pass_at_k": estimate(0.4, 0.2406, 0.5594, 30),
                "maj_at_k": estimate(0.4, 0.2406, 0.5594, 30),
                "share_at_k": estimate(1.0, 0.8865, 1.0, 30),
            },
            {
                "k": 2,
                "pass_at_k": estimate(0.5, 0.3181, 0.6819, 30),
                "maj_at_k": estimate(0.4, 0.2406, 0.5594, 30),
                "share_at_k": estimate(0.9, 0.8176, 0.9824, 30),
            },
        ],
        "vote_share": estimate(0.9, 0.8176, 0.9824, 30),
        "truncated": estimate(0.0333, 0.0, 0.0987, 30),
        "unparsed": estimate(0.0333, 0.0, 0.0987, 30),
        "mean_tokens": 812.5,
        "tokens": 73_125,
        "by_level": {},
        "by_subject": {"algebra": estimate(0.5, 0.2118, 0.7882, 12)},
        "by_majority_share": [
            {
                "threshold": 0.6,
                "answer": estimate(0.5, 0.3181, 0.6819, 24),
                "majority": estimate(0.5, 0.3143, 0.6857, 24),
                "left": estimate(0.8, 0.6269, 0.9049, 30),
            }
        ],
        "rechecks": [
            {
                "judge": _JUDGED["judge"],
                "answers": 57,
                "judged": 57,
                "unclear": 1,
                "failures_rechecked": {
                    "pass_at_1": estimate(0.4333, 0.2724, 0.5943, 30),
                    "greedy": estimate(0.5333, 0.3614, 0.6977, 30),
                },
                "judge_alone": {
                    "pass_at_1": estimate(0.4167, 0.2602, 0.5731, 30),
                    "greedy": estimate(0.5333, 0.3614, 0.6977, 30),
                },
                "passes_called_wrong": estimate(0.0714, 0.0127, 0.3147, 14),
                "failures_called_right": estimate(0.0476, 0.0132, 0.1579, 42),
                "disagreements": estimate(0.0536, 0.0184, 0.1461, 56),
            }
        ],
    },
    "RecordPage": {"items": [{**_RECORD, "texts": None}], "next": "aime24/0"},
    "Record": _RECORD,
    "RecordManifest": {
        "evaluation": _EVALUATION["id"],
        **{name: _EVALUATION[name] for name in ("model", "benchmark", "run", "manifest")},
        "format": "jsonl",
        "rows": 30,
        "answers": 90,
        "judged": {_JUDGED["judge"]: 57},
        "texts": True,
        "columns": [
            *("id", "question", "reference", "level", "subject"),
            *("samples", "correct", "greedy_correct", "majority_correct", "answers"),
        ],
        "bytes": 131_072,
        "sha256": sha256("the records"),
    },
    "Comparison": {
        "benchmark": "micro",
        "questions": 1020,
        "baseline": "full",
        "arms": [
            {
                "arm": "full",
                "runs": ["ablation-full-1", "ablation-full-2"],
                "unfinished": [],
                "iteration": 1,
                "settings": {"dataset.filtered": True},
                "curves": {"greedy": [_point(0, [0.3, 0.3], 0.3, 0.3), _point(1, [0.66, 0.7], 0.426, 0.934)]},
                "differences": {},
            },
            {
                "arm": "no_filter",
                "runs": ["ablation-no_filter-1", "ablation-no_filter-2"],
                "unfinished": ["ablation-no_filter-3"],
                "iteration": 1,
                "settings": {"dataset.filtered": False},
                "curves": {"greedy": [_point(0, [0.3, 0.3], 0.3, 0.3), _point(1, [0.64, 0.65], 0.581, 0.709)]},
                "differences": {"greedy": asdict(_NO_FILTER)},
            },
        ],
        "remarks": [*remarks("full", {"full": [1, 2], "no_filter": [1, 2]}, {"no_filter": {"greedy": _NO_FILTER}})],
    },
    "ModelComparison": {
        "benchmarks": [
            {
                "name": "aime24",
                "questions": 30,
                "protocol": {"samples": 32, "sampling": _SAMPLING},
                "evaluations": {"demo:base": "5f0c3d1e9a7b2468", "demo:3": "6a1d4e2f0b8c3579"},
            },
            {
                "name": "math500",
                "questions": 500,
                "protocol": {"samples": 0, "sampling": _SAMPLING},
                "evaluations": {"demo:base": "7b2e5f301c9d4680"},
            },
        ],
        "rows": [
            {
                "model": "demo:base",
                "metric": None,
                "cells": {
                    "aime24": {"figure": estimate(0.11, 0.03, 0.19, 30), "difference": None},
                    "math500": {"figure": estimate(0.68, 0.638, 0.7193, 500), "difference": None},
                },
                "average": {"figure": estimate(0.395, 0.35, 0.44, 530), "difference": None},
            },
            {
                "model": "demo:3",
                "metric": None,
                "cells": {
                    "aime24": {
                        "figure": estimate(0.13, 0.04, 0.22, 30),
                        "difference": estimate(0.02, -0.01, 0.05, 30),
                    }
                },
                "average": None,
            },
        ],
        "missing": {"demo:3": ["math500"]},
    },
    "TriggeredEvaluation": {
        "model": "demo:3",
        "flow_run": "1c9d3f0e-6a0b-4e1c-9a44-0d5b7f6f2a11",
        "state": "SCHEDULED",
        "url": "http://127.0.0.1:4200/runs/flow-run/1c9d3f0e-6a0b-4e1c-9a44-0d5b7f6f2a11",
    },
}
