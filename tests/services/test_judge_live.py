"""A judge that is a real Ray Serve application, with a model that cannot judge."""

from __future__ import annotations

import pytest

from core.asking.judge import Judge
from core.grading.grader import Grader
from core.judging.replies import Case, Claimed, JudgePrompt, Truth
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference import access
from services.oracles.judge import JudgeError, audit
from tests.live import Live
from tests.served import base_checkpoint


@pytest.mark.parametrize("prompt", ["annotate", "equivalence"])
def test_the_tiny_solver_fails_the_sentinels_as_a_judge(live: Live, prompt: JudgePrompt) -> None:
    """Both prompts fit into the tiny model's 512 tokens, so it replies, but it has never seen an instruction."""
    serve_checkpoints(live.services, {"solver": base_checkpoint(live)})
    settings = Judge(
        url=live.services.endpoint("solver"),
        model="solver",
        key_variable=access.KEY,
        prompt=prompt,
    ).model_copy(update={"batch_attempts": 1, "max_tokens": 30})
    case = Case("r/1/000000", "What is 3 + 4?", Claimed("7"), Truth("7"))
    with Grader() as grader, pytest.raises(JudgeError, match=r"sentinel accuracy: .* got \d of 8 right") as failed:
        audit([case], settings, grader, seed=1)
    assert "refused" not in str(failed.value)
