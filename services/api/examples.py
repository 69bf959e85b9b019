"""One complete example of each of the API's answers, from a run called demo, for the API's description."""

from __future__ import annotations

import hashlib
from typing import Any

from fastapi import FastAPI

_BEGUN, _ENDED = "2026-03-01T09:00:00Z", "2026-03-01T09:14:30Z"
_QUESTIONS = {"run": "demo", "iteration": 1}
_ID = "demo/1/000042"


def _sha256(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()


def _estimate(value: float, lo: float, hi: float, n: int) -> dict[str, Any]:
    return {"value": value, "lo": lo, "hi": hi, "n": n}


def _checkpoint(role: str, iteration: int, step: int, parent: str | None) -> dict[str, Any]:
    key = f"demo/{role}/{iteration}"
    files = {"path": f"/var/lib/coevo/checkpoints/{key}", "sha256": _sha256(key)}
    return {"id": key, "run": "demo", "role": role, "iteration": iteration, "step": step, **files, "parent": parent}


def _vote(sample: int, answer: str, in_class: int) -> dict[str, Any]:
    return {
        "question_id": _ID,
        "sample_index": sample,
        "answer": answer,
        "in_class": in_class,
        "tokens": 24 + sample,
        "finish_reason": "stop",
        "mean_entropy": 0.31,
        "entropy_error": 0.0,
        "checkpoint": "demo/base/0",
        "seed": str(7421 + sample),
    }


_BASE = _checkpoint("base", 0, 0, None)
_SOLVERS = [_checkpoint("solver", t, 24, f"demo/solver/{t - 1}" if t > 1 else "demo/base/0") for t in (1, 2, 3)]
_CONFIG = {
    "kind": "co_evolve",
    "seed": 20260,
    "iterations": 3,
    "base_model": "micro",
    "dataset": {"candidates": 320, "votes": 10, "delta": 0.25},
}
_RUN = {
    "name": "demo",
    "preset": "demo",
    "seed": "20260",
    "status": "running",
    "iterations": 3,
    "created_at": _BEGUN,
    "updated_at": _ENDED,
}
_VERDICTS = {"kept": 180, "too_easy": 90, "too_hard": 20, "no_majority": 10, "malformed": 12, "duplicate": 8}
_KEPT = _estimate(0.5625, 0.5077, 0.6158, 320)
_STAGE = {
    "iteration": 1,
    "stage": "label_questions",
    "status": "done",
    "attempt": 1,
    "started_at": "2026-03-01T09:03:00Z",
    "finished_at": "2026-03-01T09:03:21Z",
    "seconds": 21.0,
    "error": None,
    "progress_done": 320,
    "progress_total": 320,
    "progress_note": "questions",
}
_QUESTION = {
    "id": _ID,
    **_QUESTIONS,
    "index": 42,
    "text": "What is 7 + 5 * 3?",
    "checkpoint": "demo/challenger/1",
    "seed": "421",
    "verdict": "kept",
    "answer": "22",
    "votes": 6,
    "m": 10,
    "parsed": 10,
    "unknown": 0,
    "p_hat": 0.6,
    "denominator": "all",
    "oracles": [{"question_id": _ID, "oracle": "exact", "verdict": "right", "truth": "22"}],
}
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
    "raised_at": _ENDED,
    "acknowledged_at": None,
    "acknowledged_by": None,
    "note": "",
}
_SAMPLING = {"temperature": 1.0, "top_p": 0.99, "top_k": None, "max_tokens": 4096}
_KEY = {"name": "ann", "scopes": ["read", "label"], "created_at": _BEGUN, "revoked_at": None}
_TEXT = "5 * 3 = 15. 7 + 15 = 22. The answer is \\boxed{22}."
_ACCURATE = _estimate(0.88, 0.8183, 0.9227, 150)
_ACCURACY = {"oracle": "human", "over": "kept", "population": 180}
_AGREEMENTS = {
    "oracles": [{"first": "exact", "second": "human", "kappa": _estimate(0.92, 0.85, 0.99, 150)}],
    "annotators": [{"first": "ann", "second": "bob", "kappa": _estimate(0.81, 0.7, 0.92, 145)}],
}

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
    "created_at": _BEGUN,
    "finished_at": _ENDED,
}


def _point(iteration: int, values: list[float], lo: float, hi: float) -> dict[str, Any]:
    mean = sum(values) / len(values)
    interval = _estimate(mean, lo, hi, len(values))
    return {"iteration": iteration, "mean": mean, "interval": interval, "values": values}


def _amounts(**amounts: float) -> dict[str, Any]:
    names = ("seconds", "cpu_seconds", "gpu_seconds", "requests", "prompt_tokens", "reply_tokens", "judge_requests")
    return {name: amounts.get(name, 0) for name in (*names, "money")}


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
    "texts": [_TEXT, _TEXT, _TEXT],
}

# By the name of its schema in the description.
EXAMPLES: dict[str, Any] = {
    "RunPage": {"items": [_RUN], "next": None},
    "RunDetail": {**_RUN, "config": _CONFIG},
    "Stage": _STAGE,
    "IterationSummary": {
        "iteration": 1,
        "stages": [_STAGE],
        "now": None,
        "questions": 320,
        "verdicts": _VERDICTS,
        "kept": _KEPT,
        "mean_p_hat": 0.71,
        "seconds": 21.0,
    },
    "Job": {
        **_QUESTIONS,
        "stage": "train_solver",
        "kind": "GPU",
        "units": 2.0,
        "status": "running",
        "since": _BEGUN,
        "used": 148.0,
    },
    "QuestionPage": {"items": [_QUESTION], "next": "WzQyXQ"},
    "QuestionDetail": {
        **_QUESTION,
        "raw": "<question>What is 7 + 5 * 3?</question>\n\\boxed{22}",
        "given_answer": None,
        "classes": [{"answer": "22", "votes": 6}, {"answer": "36", "votes": 4}],
        "rollouts": [_vote(i, "22", 0) if i < 6 else _vote(i, "36", 1) for i in range(10)],
        "annotations": [{"question_id": _ID, "annotator": "ann", "verdict": "right", "note": "", "made_at": _ENDED}],
        "cluster": {"number": 3, "size": 5},
        "trained_on": [{"question_id": _ID, "checkpoint": "demo/solver/1", "steps": [2, 9]}],
    },
    "Statistics": {
        "verdicts": _VERDICTS,
        "kept": _KEPT,
        "mean_p_hat": 0.71,
        "unparsed_share": 0.02,
        "histogram": [
            {"p_hat": 0.2, "verdict": "too_hard", "questions": 20},
            {"p_hat": 0.6, "verdict": "kept", "questions": 180},
            {"p_hat": 1.0, "verdict": "too_easy", "questions": 90},
        ],
    },
    "ClusterSummary": {"number": 0, "size": 9, "example": "What is 2 + 3?"},
    "VoteText": {**_vote(3, "22", 0), "text": _TEXT},
    "Evaluation": {
        "checkpoint": "demo/solver/1",
        "benchmark": "micro",
        "samples": 8,
        "pass_at_1": _estimate(0.55, 0.5005, 0.5995, 240),
        "greedy": _estimate(0.7, 0.6392, 0.7545, 240),
        "majority": _estimate(0.625, 0.5622, 0.6838, 240),
    },
    "MatrixCell": {
        "oracle": "exact",
        "questions": 1,
        "solver": "demo/solver/1",
        "over": "all",
        "figure": _estimate(0.7, 0.6333, 0.7592, 200),
    },
    "EvaluationRow": _EVALUATION,
    "EvaluationFigures": {
        "evaluation": _EVALUATION,
        "questions": 30,
        "samples": 2,
        "pass_at_1": _estimate(0.4, 0.2406, 0.5594, 30),
        "greedy": _estimate(0.5, 0.3315, 0.6685, 30),
        "majority": _estimate(0.4, 0.2459, 0.5768, 30),
        "curve": [
            {
                "k": 1,
                "pass_at_k": _estimate(0.4, 0.2406, 0.5594, 30),
                "maj_at_k": _estimate(0.4, 0.2406, 0.5594, 30),
                "share_at_k": _estimate(1.0, 0.8865, 1.0, 30),
            },
            {
                "k": 2,
                "pass_at_k": _estimate(0.5, 0.3181, 0.6819, 30),
                "maj_at_k": _estimate(0.4, 0.2406, 0.5594, 30),
                "share_at_k": _estimate(0.9, 0.8176, 0.9824, 30),
            },
        ],
        "vote_share": _estimate(0.9, 0.8176, 0.9824, 30),
        "truncated": _estimate(0.0333, 0.0, 0.0987, 30),
        "unparsed": _estimate(0.0333, 0.0, 0.0987, 30),
        "mean_tokens": 812.5,
        "tokens": 73_125,
        "by_level": {},
        "by_subject": {"algebra": _estimate(0.5, 0.2118, 0.7882, 12)},
        "by_majority_share": [
            {
                "threshold": 0.6,
                "answer": _estimate(0.5, 0.3181, 0.6819, 24),
                "majority": _estimate(0.5, 0.3143, 0.6857, 24),
                "left": _estimate(0.8, 0.6269, 0.9049, 30),
            }
        ],
        "rechecks": [
            {
                "judge": _JUDGED["judge"],
                "answers": 57,
                "judged": 57,
                "unclear": 1,
                "failures_rechecked": {
                    "pass_at_1": _estimate(0.4333, 0.2724, 0.5943, 30),
                    "greedy": _estimate(0.5333, 0.3614, 0.6977, 30),
                },
                "judge_alone": {
                    "pass_at_1": _estimate(0.4167, 0.2602, 0.5731, 30),
                    "greedy": _estimate(0.5333, 0.3614, 0.6977, 30),
                },
                "passes_called_wrong": _estimate(0.0714, 0.0127, 0.3147, 14),
                "failures_called_right": _estimate(0.0476, 0.0132, 0.1579, 42),
                "disagreements": _estimate(0.0536, 0.0184, 0.1461, 56),
            }
        ],
    },
    "RecordPage": {"items": [{**_RECORD, "texts": None}], "next": "aime24/0"},
    "Record": _RECORD,
    "ExperimentRuns": {
        "name": "ablation",
        "arms": {"full": ["ablation-full-1"], "no_filter": ["ablation-no_filter-1"]},
    },
    "Comparison": {
        "benchmark": "micro",
        "questions": 1020,
        "baseline": "full",
        "arms": [
            {
                "arm": "full",
                "runs": ["ablation-full-1", "ablation-full-2"],
                "iteration": 1,
                "settings": {"dataset.filtered": True},
                "curves": {"greedy": [_point(0, [0.3, 0.3], 0.3, 0.3), _point(1, [0.66, 0.7], 0.426, 0.934)]},
                "differences": {},
            },
            {
                "arm": "no_filter",
                "runs": ["ablation-no_filter-1", "ablation-no_filter-2"],
                "iteration": 1,
                "settings": {"dataset.filtered": False},
                "curves": {"greedy": [_point(0, [0.3, 0.3], 0.3, 0.3), _point(1, [0.64, 0.65], 0.581, 0.709)]},
                "differences": {
                    "greedy": {
                        "estimate": _estimate(-0.035, -0.068, -0.004, 1020),
                        "p": 0.028,
                        "by_seed": [-0.02, -0.05],
                    }
                },
            },
        ],
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
                    "aime24": {"figure": _estimate(0.11, 0.03, 0.19, 30), "difference": None},
                    "math500": {"figure": _estimate(0.68, 0.638, 0.7193, 500), "difference": None},
                },
                "average": {"figure": _estimate(0.395, 0.35, 0.44, 530), "difference": None},
            },
            {
                "model": "demo:3",
                "metric": None,
                "cells": {
                    "aime24": {
                        "figure": _estimate(0.13, 0.04, 0.22, 30),
                        "difference": {"estimate": _estimate(0.02, -0.01, 0.05, 30), "p": 0.2, "by_seed": [0.02]},
                    }
                },
                "average": None,
            },
        ],
        "missing": {"demo:3": ["math500"]},
    },
    "RunCosts": {
        "currency": "USD",
        "rows": [
            {
                "iteration": 1,
                "stage": "label_questions",
                "purpose": "votes",
                "amounts": _amounts(requests=320, prompt_tokens=12_800, reply_tokens=80_000),
            },
            {
                "iteration": 1,
                "stage": "label_questions",
                "purpose": "applications",
                "amounts": _amounts(gpu_seconds=42.0, money=0.0233),
            },
        ],
        "total": _amounts(gpu_seconds=42.0, requests=320, prompt_tokens=12_800, reply_tokens=80_000, money=0.0233),
        "elapsed_seconds": 870.0,
        "making": _amounts(gpu_seconds=42.0, requests=320, prompt_tokens=12_800, reply_tokens=80_000, money=0.0233),
        "kept": 180,
        "correct": [
            {
                "oracle": "exact",
                "questions": _estimate(158.4, 147.3, 166.1, 150),
                "cost": _amounts(gpu_seconds=42.0, money=0.0233),
                "seconds": _estimate(0.2652, 0.2529, 0.2851, 150),
                "money": _estimate(0.000147, 0.00014, 0.000158, 150),
            }
        ],
    },
    "StepLabelFigures": {
        "iteration": 1,
        "step": 12,
        "oracle": "given",
        "accuracy": _estimate(0.75, 0.551, 0.88, 24),
        "labelled": _estimate(0.75, 0.5789, 0.8675, 32),
        "negatives": None,
    },
    "TrainMetric": {"iteration": 1, "role": "solver", "step": 12, "name": "reward_mean", "value": 0.58},
    "SeriesPoint": {
        "iteration": 1,
        "name": "label_accuracy",
        "over": "kept",
        "oracle": "exact",
        "value": 0.88,
        "lo": 0.8183,
        "hi": 0.9227,
        "n": 150,
        "estimated": False,
    },
    "Checkpoint": _SOLVERS[0],
    "CheckpointDetail": {
        "checkpoint": _SOLVERS[0],
        "manifest": {"config.json": _sha256("config.json"), "model.safetensors": _sha256("model.safetensors")},
        "ancestors": [_BASE],
        "children": _SOLVERS[1:2],
        "descendants": _SOLVERS[1:],
    },
    "Manifest": {
        **_QUESTIONS,
        "only": "all",
        "format": "jsonl",
        "rows": 320,
        "verdicts": _VERDICTS,
        "audited": {"exact": 300},
        "columns": [
            *("id", "run", "iteration", "index", "question", "verdict", "answer", "votes", "m", "parsed"),
            *("unknown", "p_hat", "denominator", "challenger", "seed", "oracles"),
        ],
        "bytes": 98304,
        "sha256": _sha256("the file"),
        "asked_by": {"demo/challenger/1": _sha256("demo/challenger/1")},
        "voted_by": {"demo/base/0": _BASE["sha256"]},
        "config": _CONFIG,
    },
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
        "sha256": _sha256("the records"),
    },
    "AlertPage": {"items": [_ALERT], "next": None},
    "AlertDetail": {
        "alert": _ALERT,
        "deliveries": [
            {
                "alert": _ALERT["id"],
                "target": "hooks.example.org#1a2b3c4d",
                "attempts": 1,
                "next_at": _ENDED,
                "delivered_at": "2026-03-01T09:14:31Z",
                "error": None,
            }
        ],
    },
    "AlertRow": {**_ALERT, "acknowledged_at": "2026-03-01T10:00:00Z", "acknowledged_by": "ann", "note": "Restarted."},
    "Sample": {
        **_QUESTIONS,
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
        "estimated": [{"iteration": 2, **_ACCURACY, "figure": _estimate(0.86, 0.78, 0.92, 150), "frame": None}],
        "checks": [
            {
                "oracle": "human",
                "over": "kept",
                "error": 0.02,
                "bias": 0.02,
                "held": 1,
                "folds": [{"iteration": 1, "estimated": _estimate(0.9, 0.84, 0.95, 140), "measured": _ACCURATE}],
            }
        ],
        **_AGREEMENTS,
    },
    "Labelling": {
        "annotator": "ann",
        "question": {
            "id": _ID,
            "index": 42,
            "text": "What is 7 + 5 * 3?",
            "label": "22",
            "answers": ["22", "36"],
        },
        "progress": {"drawn": 160, "settled": 150, "annotated": 158, "skipped": 4},
    },
    "Preset": {"name": "demo", "about": "The demo: three iterations of R-Zero on the tiny shipped model."},
    "TriggeredEvaluation": {
        "model": "demo:3",
        "flow_run": "1c9d3f0e-6a0b-4e1c-9a44-0d5b7f6f2a11",
        "state": "SCHEDULED",
        "url": "http://127.0.0.1:4200/runs/flow-run/1c9d3f0e-6a0b-4e1c-9a44-0d5b7f6f2a11",
    },
    "Triggered": {
        "run": "demo",
        "flow_run": "3f1c2d5e-8a4b-4c6d-9e0f-123456789abc",
        "state": "SCHEDULED",
        "url": "http://127.0.0.1:4200/runs/flow-run/3f1c2d5e-8a4b-4c6d-9e0f-123456789abc",
    },
    "FlowRunState": {
        "run": "third",
        "flow_run": "3f1c2d5e-8a4b-4c6d-9e0f-123456789abc",
        "state": "FAILED",
        "name": "Failed",
        "message": "Flow run encountered an exception: BenchmarkError: evaluation.benchmark: benchmark "
        "benchmarks/math500.jsonl: cannot be read: No such file or directory",
        "since": _BEGUN,
        "begun": False,
        "url": "http://127.0.0.1:4200/runs/flow-run/3f1c2d5e-8a4b-4c6d-9e0f-123456789abc",
    },
    "KeyRow": _KEY,
    "NewKey": {"name": "ann", "scopes": ["read", "label"], "key": "coevo_" + "x" * 43},
    "Health": {"status": "ok"},
}


def install(app: FastAPI) -> None:
    """Add the examples to the API's description, to every answer that is JSON. The example of a list has one entry.

    They are added here and not in the answers' classes, because some of these belong to the store or to `core`, which
    do not know the API.
    """
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            for operation in (operation for path in plain()["paths"].values() for operation in path.values()):
                _show(operation["responses"])
        return plain()

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's documentation does this too


def _show(responses: dict[str, Any]) -> None:
    for status, response in responses.items():
        answer = response.get("content", {}).get("application/json")
        if answer and status.startswith("2"):
            schema = answer["schema"]
            items = schema.get("items")
            name = (items or schema).get("$ref", "").rpartition("/")[2]
            if name in EXAMPLES:
                answer["example"] = [EXAMPLES[name]] if items else EXAMPLES[name]
