"""Jobs for the real EasyR1 on the tiny shipped model, and a fake Solver service for its Challenger."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.challenger import RZeroChallenger
from core.settings.parsing import parse_method
from core.settings.training import Sampling, Training, TrainingSampling
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL
from trainers.base import ChallengerJob, SolverJob, SolverService, TrainQuestion
from trainers.micro.world import make_problem

HERE = Path(__file__).parent
PYTHON = HERE / "easyr1_on_a_cpu" / "python"  # this script runs $COEVO_EASYR1_PYTHON


def solver_job(work: Path, name: str, settings: dict[str, Any], **training: Any) -> SolverJob:
    rng = random.Random(4)
    problems = [make_problem(rng, operations=3 + i % 3) for i in range(8)]
    questions = tuple(TrainQuestion(f"t/1/{i}", p.text, str(p.answer), str(p.answer)) for i, p in enumerate(problems))
    return SolverJob(reward=parse_method(name, settings), questions=questions, **_common_settings(work, training))


def challenger_job(work: Path, url: str, **training: Any) -> ChallengerJob:
    reward = RZeroChallenger(votes=4, kl_coefficient=0.05, loss_average="token")
    service = SolverService(url, "t/solver/0", Sampling(max_tokens=8))
    return ChallengerJob(reward=reward, solver=service, **_common_settings(work, training))


def _common_settings(work: Path, changes: dict[str, Any]) -> dict[str, Any]:
    values = {"prompts_per_step": 4, "rollouts_per_prompt": 4, "learning_rate": 1e-3, **changes}
    return {
        "key": "t/1/train",
        "run_seed": 7,
        "start": Checkpoint("t/base/0", "t", "base", 0, 0, str(MICRO_MODEL), "0" * 64, None),
        "training": Training(sampling=TrainingSampling(top_p=1.0, max_tokens=64), **values),
        "work_dir": work,
    }


def votes(_: int, body: dict[str, Any]) -> tuple[int, Any]:
    """The reply of a Solver that is surer of some questions than of others."""
    sure = 1 + zlib.crc32(body["messages"][-1]["content"].encode()) % body["n"]
    return reply(body, [str(0 if i < sure else i) for i in range(body["n"])])


def reply(body: dict[str, Any], answers: Sequence[str]) -> tuple[int, Any]:
    """The reply of a service with these answers, each of three tokens."""
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": rf"\boxed{{{answer}}}"},
            "finish_reason": "stop",
            "completion_tokens": 3,
            "mean_entropy": 0.1,
            "entropy_error": 0.0,
        }
        for i, answer in enumerate(answers)
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 3 * len(choices), "total_tokens": 1 + 3 * len(choices)}
    same = {name: body[name] for name in ("model", "policy_version")}
    return 200, {"id": "x", "created": 0, **same, "choices": choices, "usage": usage}
