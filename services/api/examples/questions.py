"""Questions with their votes, and their exports."""

from __future__ import annotations

from typing import Any

from services.api.examples.shared import BASE, CONFIG, ENDED, ID, KEPT, QUESTIONS, TEXT, VERDICTS, sha256


def _vote(sample: int, answer: str, in_class: int) -> dict[str, Any]:
    return {
        "question_id": ID,
        "sample_index": sample,
        "answer": answer,
        "in_class": in_class,
        "agrees": in_class == 0,
        "tokens": 24 + sample,
        "finish_reason": "stop",
        "mean_entropy": 0.31,
        "entropy_error": 0.0,
        "checkpoint": "demo/base/0",
        "seed": str(7421 + sample),
    }


_RUN = {"run": "demo", "iterations": [1], "config": CONFIG}
_CONTENTS = {  # of an export, by its manifest
    "what": "questions",
    "filters": {"p_hat_min": 0.25},
    "format": "jsonl",
    "schema_version": 3,
    "rows": 320,
    "texts": 0,
    "questions": 320,
    "verdicts": VERDICTS,
    "audited": {"exact": 300},
    "columns": [{"name": "text", "type": "string", "description": "the question"}],
    "bytes": 98304,
    "sha256": sha256("the file"),
    "asked_by": {"demo/challenger/1": sha256("demo/challenger/1")},
    "voted_by": {"demo/base/0": BASE["sha256"]},
}
_QUESTION = {
    "id": ID,
    **QUESTIONS,
    "index": 42,
    "text": "What is 7 + 5 * 3?",
    "checkpoint": "demo/challenger/1",
    "seed": "421",
    "given_answer": None,
    "verdict": "kept",
    "answer": "22",
    "votes": 6,
    "m": 10,
    "parsed": 10,
    "unknown": 0,
    "p_hat": 0.6,
    "denominator": "all",
    "oracles": [{"question_id": ID, "oracle": "exact", "verdict": "right", "truth": "22"}],
}

EXAMPLES: dict[str, Any] = {
    "QuestionPage": {"items": [_QUESTION], "next": "WzQyXQ"},
    "QuestionDetail": {
        **_QUESTION,
        "raw": "<question>What is 7 + 5 * 3?</question>\n\\boxed{22}",
        "classes": [{"answer": "22", "votes": 6}, {"answer": "36", "votes": 4}],
        "rollouts": [_vote(i, "22", 0) if i < 6 else _vote(i, "36", 1) for i in range(10)],
        "annotations": [{"question_id": ID, "annotator": "ann", "verdict": "right", "note": "", "made_at": ENDED}],
        "cluster": {"number": 3, "size": 5},
        "trained_on": [{"question_id": ID, "checkpoint": "demo/solver/1", "steps": [2, 9]}],
    },
    "Statistics": {
        "verdicts": VERDICTS,
        "kept": KEPT,
        "mean_p_hat": 0.71,
        "unparsed_share": 0.02,
        "histogram": [
            {"p_hat": 0.2, "verdict": "too_hard", "questions": 20},
            {"p_hat": 0.6, "verdict": "kept", "questions": 180},
            {"p_hat": 1.0, "verdict": "too_easy", "questions": 90},
        ],
    },
    "ClusterSummary": {"number": 0, "size": 9, "example": "What is 2 + 3?"},
    "VoteText": {**_vote(3, "22", 0), "text": TEXT},
    "RowCounts": {"iterations": [1], "questions": 180, "votes": 1_800},
    "Manifest": {**_RUN, **_CONTENTS},
    "ManifestOfRuns": {
        "runs": [{"experiment": "ablation", "arm": "baseline", "run_seed": "1", **_RUN}],
        "left_out": ["demo-2"],
        **_CONTENTS,
    },
}
