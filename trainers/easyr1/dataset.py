"""EasyR1's data set: a row a prompt, in the very order in which the embedded trainer would ask.

EasyR1 shows its reward function neither prompt nor group, and reorders the batch: what the reward must know of a prompt
is in `ground_truth`, as JSON. `prompt` is the whole chat as the model sees it, so the chat template that EasyR1 is told
to use (`CHAT_TEMPLATE`) passes it on as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from core.questions.prompts import Message, challenger_messages, solver_messages
from trainers.base import SolverJob, TrainJob
from trainers.schedule import questions_at

CHAT_TEMPLATE = "{{ messages[0]['content'] }}"
COLUMNS = ("prompt", "ground_truth")


def write_dataset(job: TrainJob, tokenizer: Any, folder: Path) -> int:
    """Write `train.parquet` and `validation.parquet` into `folder`; returns the longest prompt's tokens.

    EasyR1 validates once at its end whatever it is told; the one row for that says what it is.
    """
    rows = list(_rows(job, tokenizer))
    _write(rows, folder / "train.parquet")
    _write([{**rows[0], "ground_truth": json.dumps({"validation": True})}], folder / "validation.parquet")
    prompts = {row["prompt"] for row in rows}
    return max(len(tokenizer(prompt, add_special_tokens=False)["input_ids"]) for prompt in prompts)


def _rows(job: TrainJob, tokenizer: Any) -> Iterator[dict[str, str]]:
    for step in range(1, job.training.steps + 1):
        if not isinstance(job, SolverJob):
            prompt = _rendered(tokenizer, challenger_messages())
            for i in range(job.training.prompts_per_step):
                yield {"prompt": prompt, "ground_truth": json.dumps({"step": step, "index": i})}
            continue
        for i, question in enumerate(questions_at(job, step)):
            known = {
                "step": step,
                "index": i,
                "question_id": question.question_id,
                "question": question.text,
                "label": question.label,
                "truth": question.truth,
            }
            prompt = _rendered(tokenizer, solver_messages(question.text))
            yield {"prompt": prompt, "ground_truth": json.dumps(known, ensure_ascii=False)}


def _rendered(tokenizer: Any, messages: list[Message]) -> str:
    text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return text


def _write(rows: list[dict[str, str]], path: Path) -> None:
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
