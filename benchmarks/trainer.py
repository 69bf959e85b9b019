"""Compares the embedded trainer with TRL's GRPOTrainer: sampled tokens per second, memory, and where time is spent.

Both train the demo's Solver, with the same model, questions, prompts and rollouts per step, micro batch, sampling, KL
and lengths. They run on one thread each, in separate processes, alternately. TRL is installed with the development
requirements. Ours also computes in bfloat16, and with micro batches by tokens. `python -m benchmarks.trainer NAME
STEPS` runs one of these processes: ours, bfloat16, tokens or trl.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from typing_extensions import override

from benchmarks import trainer_application
from benchmarks.demo_solver import solver_job, train_here
from core.grading.answers import extract_boxed
from core.settings.trainers import LocalSettings
from trainers.base import SolverJob
from trainers.local.sharding import logprobs_of
from trainers.local.state import Metrics

_STEPS, _ROUNDS = 6, 2  # steps per process, of which the first is not counted
_QUESTIONS = 240
_OURS = {
    "ours": LocalSettings(),
    "bfloat16": LocalSettings(precision="bfloat16"),
    "tokens": LocalSettings(tokens_per_micro_batch=2400),  # about those of a micro batch of the demo, of 24 rows
}


def run() -> dict[str, Any]:
    """{ratio, ratios, shares, tokens_per_s, memory_mb, steps, application}.

    `tokens_per_s` are medians over all steps, `ratio` divides ours by TRL's, and `ratios` divide ours with other
    settings by ours. `shares` are the parts of our step, a
    mean over the rounds, and `memory_mb` is the peak of a process. `application` is that of `trainer_application`.
    """
    trainers = (*_OURS, "trl")
    rounds = [{trainer: _run_process(trainer) for trainer in trainers} for _ in range(_ROUNDS)]
    rates = {trainer: [rate for figures in rounds for rate in figures[trainer]["tokens_per_s"]] for trainer in trainers}
    speeds = {trainer: statistics.median(step_rates) for trainer, step_rates in rates.items()}
    shares = [figures["ours"]["shares"] for figures in rounds]
    return {
        "ratio": round(speeds["ours"] / speeds["trl"], 2),
        "ratios": {name: round(speeds[name] / speeds["ours"], 2) for name in _OURS if name != "ours"},
        "shares": {part: round(statistics.mean(row[part] for row in shares), 4) for part in shares[0]},
        "tokens_per_s": {trainer: round(median) for trainer, median in speeds.items()},
        "memory_mb": {trainer: max(figures[trainer]["memory_mb"] for figures in rounds) for trainer in trainers},
        "steps": len(rates["ours"]),
        "application": trainer_application.run(),
    }


def _run_process(trainer: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.trainer", trainer, str(_STEPS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return figures


def main(trainer: str, steps: int) -> None:
    torch.set_num_threads(1)
    disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        job = solver_job(Path(folder), _QUESTIONS // 6, steps=steps, checkpoint_every=steps)
        figures = _trl(job) if trainer == "trl" else _ours(job, _OURS[trainer])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**figures, "memory_mb": round(peak)}))


def _ours(job: SolverJob, settings: LocalSettings) -> dict[str, Any]:
    ends, metrics, passes = list[float](), list[Metrics](), list[float]()

    def report(step: Metrics) -> None:
        ends.append(time.perf_counter())
        metrics.append(step)
        passes.append(0.0)

    with _timed(passes):
        train_here(job, report, settings=settings)
    seconds = [end - begin for begin, end in pairwise(ends)]
    rollouts = job.training.prompts_per_step * job.rollouts
    tokens = [step["response_length"] * rollouts for step in metrics[1:]]
    parts = {
        "sampling": sum(step["sample_seconds"] for step in metrics[1:]),
        "forward_backward": sum(passes[1:-1]),
        "reward": sum(step["reward_seconds"] for step in metrics[1:]),
    }
    parts["other"] = sum(seconds) - sum(parts.values())
    return {
        "tokens_per_s": [count / step_seconds for count, step_seconds in zip(tokens, seconds, strict=True)],
        "shares": {part: part_seconds / sum(seconds) for part, part_seconds in parts.items()},
    }


@contextmanager
def _timed(passes: list[float]) -> Iterator[None]:
    """Add the seconds of forward and backward passes to the last of `passes`, which has one number per step."""
    passes.append(0.0)

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*arguments, **options)
            finally:
                passes[-1] += time.perf_counter() - start

        return measured

    with (
        patch("trainers.local.batches.logprobs_of", timed(logprobs_of)),
        patch("trainers.local.update.logprobs_of", timed(logprobs_of)),
        patch.object(torch.Tensor, "backward", timed(torch.Tensor.backward)),
    ):
        yield


def _trl(job: SolverJob) -> dict[str, Any]:
    trl: Any = import_module("trl")
    datasets: Any = import_module("datasets")
    training, objective, size = job.training, job.reward, job.rollouts
    rollouts, tokens = training.prompts_per_step * size, list[int]()

    def reward(completions: Any, truth: Any, completion_ids: Any, **_: Any) -> list[float]:
        tokens.append(sum(map(len, completion_ids)))
        answers = [extract_boxed(completion[0]["content"]) for completion in completions]
        return [float(answer == expected) for answer, expected in zip(answers, truth, strict=True)]

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times = list[float]()

        @override
        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(time.perf_counter())

    clock = Clock()
    arguments = trl.GRPOConfig(
        output_dir=str(job.work_dir),
        use_cpu=True,
        bf16=False,
        max_steps=training.steps,
        per_device_train_batch_size=training.micro_batch,
        gradient_accumulation_steps=rollouts // training.micro_batch,
        num_generations=size,
        max_completion_length=training.sampling.max_tokens,
        temperature=training.sampling.temperature,
        top_p=training.sampling.top_p,
        beta=objective.kl_coefficient,
        loss_type="bnpo",
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_grad_norm,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    rows = [{"prompt": job.template.messages(question.text), "truth": question.label} for question in job.questions]
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(job.start.path, dtype=torch.float32),
        reward_funcs=reward,
        args=arguments,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(job.start.path, padding_side="left"),
        callbacks=[clock],
    )
    trainer.train()
    seconds = [end - begin for begin, end in pairwise(clock.times)]
    return {"tokens_per_s": [count / step_seconds for count, step_seconds in zip(tokens[1:], seconds, strict=True)]}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
