"""lm-evaluation-harness asks our applications, and gets the replies and the accuracy that `coevo evaluate` stores.

It is not among the packages that the tests install. Install it elsewhere, and say where its command is:

python3 -m venv lm-eval && lm-eval/bin/pip install 'lm-eval[api]'
COEVO_LM_EVAL=lm-eval/bin/lm_eval pytest -m slow tests/orchestrator/test_lm_eval_live.py
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.types import GREEDY
from orchestrator.installation.home import MICRO_MODEL
from orchestrator.question_sets.benchmarks import definition_of
from services.inference import access
from storage import queries
from storage.files.texts import evaluation_path, read_texts
from tests.live import Live
from trainers.micro.world import make_benchmark

LM_EVAL = os.environ.get("COEVO_LM_EVAL")
MAX_TOKENS = 200

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(LM_EVAL is None, reason="COEVO_LM_EVAL does not name the command lm_eval"),
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    problems = make_benchmark(seed=7, per_level=7)
    rows = [{"id": f"q{i}", "problem": p.text, "answer": str(p.answer)} for i, p in enumerate(problems)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def evaluated(live: Live, questions: Path) -> tuple[dict[str, str], dict[str, bool]]:
    """The greedy replies that `coevo evaluate` stores, and whether each is right, by question."""
    options = ("--samples", "0", "--max-tokens", str(MAX_TOKENS))
    done = live.coevo("evaluate", str(MICRO_MODEL), str(questions), *options)
    assert done.returncode == 0, done.stderr
    with live.store().read() as session:
        [row] = [row for row in queries.evaluations.list_evaluations(session) if row.benchmark == str(questions)]
        answers = queries.evaluations.answers_of(session, row.id)
    texts = read_texts(evaluation_path(live.home.texts, row.id))
    return (
        {text.question_id: text.text for text in texts if text.sample_index == GREEDY},
        {answer.item_id: answer.verdict == "equal" for answer in answers if answer.sample_index == GREEDY},
    )


def harness(live: Live, questions: Path, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The results and the samples of lm-evaluation-harness, which gets the questions as a task of its own."""
    definition = definition_of(str(questions))
    assert definition.prompt == "{question}"
    task = {
        "task": "tiny_world",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions)}},
        "test_split": "test",
        "output_type": "generate_until",
        "description": definition.system,
        "doc_to_text": "{{problem}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": [], "do_sample": False, "temperature": 0, "max_gen_toks": MAX_TOKENS},
        "filter_list": [
            {
                "name": "last_box",
                "filter": [
                    {"function": "regex", "regex_pattern": r"\\boxed\{([^{}]*)\}", "group_select": -1},
                    {"function": "take_first"},
                ],
            }
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (folder / "tiny_world.yaml").write_text(yaml.safe_dump(task, allow_unicode=True))
    address = f"base_url={live.services.endpoint('solver')}/chat/completions"
    arguments = ["--model", "local-chat-completions", "--model_args", f"model=solver,{address},num_concurrent=4"]
    arguments += ["--tasks", "tiny_world", "--include_path", str(folder), "--apply_chat_template"]
    arguments += ["--output_path", str(folder / "out"), "--log_samples"]
    environment = {**os.environ, "OPENAI_API_KEY": access.key() or "", "HF_HOME": str(folder / "hf"), "NO_PROXY": "*"}
    done = subprocess.run([str(LM_EVAL), *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [results] = folder.glob("out/**/results_*.json")
    [samples] = folder.glob("out/**/samples_tiny_world_*.jsonl")
    return json.loads(results.read_text())["results"]["tiny_world"], [*map(json.loads, samples.open())]


def test_the_harness_gets_the_replies_and_the_accuracy_of_coevo_evaluate(
    live: Live, questions: Path, tmp_path: Path
) -> None:
    replies, right = evaluated(live, questions)  # leaves the model in the application
    figures, samples = harness(live, questions, tmp_path)
    assert len(replies) == len(samples) == 42
    definition = definition_of(str(questions))
    for sample in samples:
        chat = sample["arguments"]["gen_args_0"]["arg_0"]
        assert json.loads(chat[0]) == definition.template.messages(sample["doc"]["problem"])
    assert {sample["doc"]["id"]: sample["resps"][0][0] for sample in samples} == replies
    assert {sample["doc"]["id"]: sample["exact_match"] == 1 for sample in samples} == right
    assert 0 < sum(right.values()) < 42
    assert figures["exact_match,last_box"] == sum(right.values()) / 42
