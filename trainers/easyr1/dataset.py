"""Writes EasyR1's data set: one row per prompt, in the order in which the embedded trainer would use the prompts.

EasyR1 shows its reward function neither prompts nor groups, and it reorders the batch. The column `ground_truth`
therefore holds, as JSON, everything that the reward must know about a prompt. The column `prompt` is the complete chat
as the model sees it, and `CHAT_TEMPLATE`, the template that EasyR1 is configured with, passes it on unchanged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.inference.encoding import holds_control_tokens, rendered_chat
from trainers.base import SolverJob, TrainError, TrainJob
from trainers.schedule import chats_at, questions_at

CHAT_TEMPLATE = "{{ messages[0]['content'] }}"
COLUMNS = ("prompt", "ground_truth")


def write_dataset(job: TrainJob, tokenizer: Any, folder: Path) -> int:
    """Write `train.parquet` and `validation.parquet` into `folder`, and return the tokens of the longest prompt.

    EasyR1 encodes the prompts itself, so a control token in a question would become its special id. Raises `TrainError`
    for a question that holds one.

    EasyR1 always validates once at its end, whatever the configuration says. The validation file has one row, which is
    marked so that the reward function recognises it.
    """
    rows = []
    for step in range(1, job.training.steps + 1):
        questions = questions_at(job, step) if isinstance(job, SolverJob) else []
        for index, chat in enumerate(chats_at(job, step)):
            facts: dict[str, Any] = {"step": step, "index": index}
            if questions:
                question = questions[index]
                facts |= {"question_id": question.question_id, "question": question.text}
                facts |= {"label": question.label, "truth": question.truth}
            if holds_control_tokens(tokenizer, chat):
                raise TrainError(
                    f"{job.key}: question {facts.get('question_id')}: expected no control tokens of the model in it"
                )
            rows.append(
                {"prompt": rendered_chat(tokenizer, chat), "ground_truth": json.dumps(facts, ensure_ascii=False)}
            )
    _write(rows, folder / "train.parquet")
    _write([{**rows[0], "ground_truth": json.dumps({"validation": True})}], folder / "validation.parquet")
    prompts = {row["prompt"] for row in rows}
    return max(len(tokenizer(prompt, add_special_tokens=False)["input_ids"]) for prompt in prompts)


def _write(rows: list[dict[str, str]], path: Path) -> None:
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
