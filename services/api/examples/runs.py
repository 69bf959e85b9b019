"""Runs, their stages, figures and checkpoints, and keys."""

from __future__ import annotations

from typing import Any

from services.api.examples.shared import (
    BASE,
    BEGUN,
    CONFIG,
    ENDED,
    KEPT,
    QUESTIONS,
    VERDICTS,
    checkpoint,
    estimate,
    sha256,
)

_SOLVERS = [checkpoint("solver", t, 24, f"demo/solver/{t - 1}" if t > 1 else "demo/base/0") for t in (1, 2, 3)]
_FLOW_RUN = "http://127.0.0.1:4200/runs/flow-run/3f1c2d5e-8a4b-4c6d-9e0f-123456789abc"
_RUN = {
    "name": "demo",
    "preset": "demo",
    "method": "rzero",
    "seed": "20260",
    "iterations": 3,
    "iterations_done": 1,
    "created_at": BEGUN,
    "updated_at": BEGUN,
    "state": "running",
    "reason": "iteration 2, label_questions: 128 of 320 questions labelled",
    "since": ENDED,
    "iteration": 2,
    "stage": "label_questions",
    "active": True,
    "flow_run": _FLOW_RUN,
    "open_alerts": {"critical": 0, "warning": 1},
    "label_change": {
        **{"oracle": "exact", "first_iteration": 1, "last_iteration": 3},
        **{"first": 0.9, "last": 0.8, "change": -0.1, "drifts": True},
    },
    "tags": ["baseline"],
    "note": "The first run with the new filter.",
    "noted_by": "ann",
    "noted_at": ENDED,
}
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
_POINT = {
    "iteration": 1,
    "name": "label_accuracy",
    "over": "kept",
    "oracle": "exact",
    "value": 0.88,
    "lo": 0.8183,
    "hi": 0.9227,
    "n": 150,
    "estimated": False,
}
_KEY = {"name": "ann", "scopes": ["read", "label"], "created_at": BEGUN, "revoked_at": None}


def _amounts(**amounts: float) -> dict[str, Any]:
    names = ("seconds", "cpu_seconds", "gpu_seconds", "requests", "prompt_tokens", "reply_tokens", "judge_requests")
    return {name: amounts.get(name, 0) for name in (*names, "money")}


EXAMPLES: dict[str, Any] = {
    "RunPage": {"items": [_RUN], "next": None, "problem": None},
    "RunWithConfig": {**_RUN, "config": CONFIG},
    "Stage": _STAGE,
    "IterationSummary": {
        "iteration": 1,
        "stages": [_STAGE],
        "now": None,
        "questions": 320,
        "verdicts": VERDICTS,
        "kept": KEPT,
        "mean_p_hat": 0.71,
        "seconds": 21.0,
    },
    "RunRemaining": {
        "iteration": 2,
        "stage": "train_solver",
        "of_stage": {"low": 31.0, "high": 64.0},
        "of_run": {"low": 380.0, "high": 790.0},
        "unknown": None,
        "similar": ["earlier-demo"],
    },
    "LogEvent": {
        "time": "2026-03-01T09:03:21Z",
        "run": "demo",
        "iteration": 1,
        "stage": "label_questions",
        "level": "INFO",
        "message": "label_questions 1: kept 56.2% [50.8, 61.6] (n = 320), too easy 96, too hard 44; 21.0 s",
    },
    "Job": {
        **QUESTIONS,
        "stage": "train_solver",
        "kind": "GPU",
        "units": 2.0,
        "status": "running",
        "since": BEGUN,
        "used": 148.0,
    },
    "ExperimentRuns": {
        "name": "ablation",
        "arms": {"full": ["ablation-full-1"], "no_filter": ["ablation-no_filter-1"]},
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
                "questions": estimate(158.4, 147.3, 166.1, 150),
                "cost": _amounts(gpu_seconds=42.0, money=0.0233),
                "seconds": estimate(0.2652, 0.2529, 0.2851, 150),
                "money": estimate(0.000147, 0.00014, 0.000158, 150),
            }
        ],
    },
    "StepLabelFigures": {
        "iteration": 1,
        "step": 12,
        "oracle": "given",
        "accuracy": estimate(0.75, 0.551, 0.88, 24),
        "labelled": estimate(0.75, 0.5789, 0.8675, 32),
        "negatives": None,
    },
    "TrainMetric": {"iteration": 1, "role": "solver", "step": 12, "name": "reward_mean", "value": 0.58},
    "SeriesPoint": _POINT,
    "RunSeries": {"run": "demo", "points": [_POINT]},
    "Checkpoint": _SOLVERS[0],
    "CheckpointDetail": {
        "checkpoint": _SOLVERS[0],
        "manifest": {"config.json": sha256("config.json"), "model.safetensors": sha256("model.safetensors")},
        "ancestors": [BASE],
        "children": _SOLVERS[1:2],
        "descendants": _SOLVERS[1:],
    },
    "Preset": {
        "name": "rzero-single-gpu",
        "about": "R-Zero (arXiv 2508.05004) on Qwen3-1.7B-Base, on one GPU of 80 GB.",
        "details": {
            "comment": "R-Zero (arXiv 2508.05004) on Qwen3-1.7B-Base, on one GPU of 80 GB.",
            "arxiv": ["2508.05004"],
            "kind": "co_evolve",
            "method": "rzero",
            "base_model": "models/Qwen3-1.7B-Base",
            "iterations": 4,
            "gpus": 1,
            "hours_typical": 7.4,
            "hours_maximum": 25.1,
            "needs": [
                {
                    "kind": "model",
                    "setting": "base_model",
                    "what": "models/Qwen3-1.7B-Base",
                    "here": False,
                    "remedy": "put a Hugging Face model in safetensors there, or add --set base_model=FOLDER",
                }
            ],
        },
    },
    "Triggered": {
        "run": "demo",
        "flow_run": "3f1c2d5e-8a4b-4c6d-9e0f-123456789abc",
        "state": "waiting",
        "reason": "Prefect has accepted it; no flow runner has taken it yet",
        "url": _FLOW_RUN,
    },
    "KeyRow": _KEY,
    "NewKey": {"name": "ann", "scopes": ["read", "label"], "key": "coevo_" + "x" * 43},
    "Health": {"status": "ok"},
}
