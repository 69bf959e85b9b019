"""Samples a step's rollouts, in the trainer itself or by the run's own application of the trained role.

The application gets the trainer's weights before every step, in a folder that its replicas read:

    memory/JOB/STEP-…/       on one machine: in its memory, for the time of the training
    work_dir/weights/STEP-…/ otherwise

The folder has the complete weights, and links to the other files of the model that the training starts from. The two
newest folders stay, because Serve may restart a replica at any time. The application's checkpoint is named after run,
job, step and digest, and the client takes replies of this one only. With the embedded engine on a CPU the rollouts are
those that the trainer would have sampled itself, to the bit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from core.processes.faultpoints import faultpoint
from services.inference import access
from services.inference.client import InferenceClient, Reply
from services.inference.encoding import encode_chat
from services.inference.engines.base import Completion, Prompt
from services.inference.engines.embedded import TransformersEngine
from services.inference.serve import ServeError, swap_in
from trainers.base import SamplerService, TrainError, TrainJob
from trainers.folders import appearing, remove
from trainers.local.checkpoints import complete_weights
from trainers.local.grpo import token_logprobs
from trainers.local.ranks import Ranks
from trainers.local.sharding import unsharded
from trainers.local.state import Metrics

_KEPT = 2  # folders with weights
_SHARD = "2GB"  # of one file of weights: their digests are computed at the same time


@dataclass(frozen=True, slots=True)
class Sampler:
    """Every rank has one and calls both together with the others."""

    # Takes a step and its prompts, and returns a completion for each prompt and the figures of the sampling.
    sample: Callable[[int, Sequence[Prompt]], tuple[list[Completion], Metrics]]
    close: Callable[[], None]  # when the job is done


def make_sampler(job: TrainJob, engine: TransformersEngine, ranks: Ranks) -> Sampler:
    """What samples the rollouts of `job` from the model of `engine`, which is the policy."""
    if job.sampler is None:
        return Sampler(partial(_sample_here, engine, ranks), lambda: None)
    application = _Application(job, job.sampler, engine, ranks)
    return Sampler(application.sample, application.close)


def _sample_here(
    engine: TransformersEngine, ranks: Ranks, _step: int, prompts: Sequence[Prompt]
) -> tuple[list[Completion], Metrics]:
    with unsharded(engine.model):
        return ranks.map(prompts, lambda own: [group[0] for group in engine.generate(own)]), {}


class _Application:
    """Rank 0 writes the weights and has them swapped in; all ranks ask."""

    def __init__(self, job: TrainJob, service: SamplerService, engine: TransformersEngine, ranks: Ranks) -> None:
        self._job, self._service, self._engine, self._ranks = job, service, engine, ranks
        self._folders = list[Path]()  # of this rank, the oldest first
        self._root = _root(job, service)
        if ranks.rank == 0:
            shutil.rmtree(self._root, ignore_errors=True)  # of an attempt that was killed

    def sample(self, step: int, prompts: Sequence[Prompt]) -> tuple[list[Completion], Metrics]:
        """Swap in the weights as they are before `step`, and sample. Raises `TrainError` if the application does not
        take the weights, and `InferenceError`."""
        service, ranks, started = self._service, self._ranks, time.monotonic()
        done = self._job.steps_before + step - 1
        weights = complete_weights(self._engine.model, ranks.rank == 0)
        checkpoint, size = ranks.agree(self._swap(done, weights) if weights is not None else ("", 0))
        swap_seconds = time.monotonic() - started
        client = InferenceClient(service.url, service.application, token_logprobs=True)
        replies = ranks.map(prompts, lambda own: [group[0] for group in client.generate(own, checkpoint)])
        completions = [_completion(reply) for reply in replies]
        if _lacks_figures(self._job, service, replies):
            with unsharded(self._engine.model):
                pairs = list(zip(prompts, completions, strict=True))
                completions = ranks.map(pairs, self._with_own_figures)
        return completions, {"swap_seconds": swap_seconds, "swap_bytes": float(size)}

    def close(self) -> None:
        """Remove the weights. After an error they stay until the job begins again, or Ray stops."""
        for folder in self._folders:
            remove(folder)
        with suppress(OSError):  # another process has the job, and writes its own
            self._root.rmdir()

    def _swap(self, done: int, weights: dict[str, torch.Tensor]) -> tuple[str, int]:
        """Returns the checkpoint's name, and the bytes of its weights."""
        job, service = self._job, self._service
        folder = self._root / f"{done}-{uuid4().hex[:8]}"  # a process that has lost the job never writes the same
        size = _write(folder, weights, self._engine.model, Path(job.start.path), service.dtype)
        self._folders.append(folder)
        faultpoint("weights written", f"{job.key}/{done}")
        name = f"{service.run}/{job.key}@{done}"
        token = os.environ.get(access.RAY_TOKEN, "")
        try:
            checkpoint = swap_in(service.dashboard_url, token, service.url, service.application, name, folder)
        except ServeError as error:
            raise TrainError(f"{job.key}: trainer.sampler: {error}") from error
        faultpoint("weights swapped", f"{job.key}/{done}")
        for old in self._folders[:-_KEPT]:
            remove(old)
        del self._folders[:-_KEPT]
        return checkpoint, size

    @torch.inference_mode()
    def _with_own_figures(self, pairs: Sequence[tuple[Prompt, Completion]]) -> list[Completion]:
        """The completions with the entropies of the policy, by a forward pass, and with its log-probabilities if the
        application's are of another distribution."""
        model, tokenizer = self._engine.model, self._engine.tokenizer
        training, result = self._job.training, list[Completion]()
        for start in range(0, len(pairs), training.micro_batch):
            batch = pairs[start : start + training.micro_batch]
            rows = [[*encode_chat(tokenizer, prompt.messages), *completion.tokens] for prompt, completion in batch]
            ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
            mask = torch.zeros_like(ids, dtype=torch.bool)
            for i, (row, (_, completion)) in enumerate(zip(rows, batch, strict=True)):
                ids[i, : len(row)] = torch.tensor(row)
                mask[i, len(row) - len(completion.tokens) : len(row)] = True
            figures = token_logprobs(model, ids.to(model.device), mask.to(model.device), training.sampling.temperature)
            for i, (_, completion) in enumerate(batch):
                logprobs, entropies = (tensor[i].cpu()[mask[i]] for tensor in figures)
                own = {} if self._service.logprobs_comparable else {"logprobs": tuple(logprobs.tolist())}
                result.append(replace(completion, mean_entropy=float(entropies.mean()), **own))
        return result


def _lacks_figures(job: TrainJob, service: SamplerService, replies: Sequence[Reply]) -> bool:
    """Whether log-probabilities are of another distribution, or entropies are missing, or rewarded and not exact."""
    rewarded = "mean_entropy" in getattr(job.reward, "needs", ())
    largest = 0.0 if rewarded else float("inf")
    return not service.logprobs_comparable or any(
        reply.mean_entropy is None or (reply.entropy_error or 0.0) > largest for reply in replies
    )


def _completion(reply: Reply) -> Completion:
    assert reply.token_ids is not None  # the client has asked for both
    assert reply.logprobs is not None
    entropy = float("nan") if reply.mean_entropy is None else reply.mean_entropy  # replaced then
    return Completion(reply.text, reply.token_ids, reply.logprobs, reply.finish_reason, entropy, reply.prompt_tokens)


def _root(job: TrainJob, service: SamplerService) -> Path:
    """The folder of the job's weights: in memory if this machine has a private folder for it, else beside the steps."""
    memory = service.memory
    if memory is None or not memory.is_dir():
        return job.work_dir / "weights"
    status = memory.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise TrainError(f"{job.key}: {memory}: expected a folder that only user {os.getuid()} may enter")
    return memory / hashlib.sha256(str(job.work_dir).encode()).hexdigest()[:16]


def _write(folder: Path, weights: dict[str, torch.Tensor], model: Any, start: Path, dtype: str) -> int:
    """Write a model folder that appears when it is complete; returns the bytes of its weights."""
    narrow = dict[int, torch.Tensor]()
    for tensor in weights.values():  # a tied weight stays one tensor under two names
        if id(tensor) not in narrow:
            narrow[id(tensor)] = tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor
    with appearing(folder) as temporary:
        named = {name: narrow[id(tensor)] for name, tensor in weights.items()}
        model.save_pretrained(temporary, state_dict=named, max_shard_size=_SHARD)
        size = sum(file.stat().st_size for file in temporary.glob("*.safetensors"))
        for file in start.iterdir():
            if ".safetensors" not in file.name and file.is_file() and not (temporary / file.name).exists():
                (temporary / file.name).symlink_to(file.resolve())
    return size
