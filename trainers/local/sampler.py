"""Samples a step's rollouts, in the trainer itself or by the run's own application of the trained role.

The application gets the trainer's weights before every step, in a folder that its replicas read:

    memory/JOB/STEP-…/       on one machine: in its memory, for the time of the training
    work_dir/weights/STEP-…/ otherwise

The folder has the complete weights, and links to the other files of the model that the training starts from. The two
newest folders stay, because Serve may restart a replica at any time. With `ahead`, the rollouts of the next step are
sampled during a step; a step that is saved has them in work_dir/ahead. The application's checkpoint is named after run,
job, step and digest, and the client takes replies of this one only. With the embedded engine on a CPU the rollouts are
those that the trainer would have sampled itself, to the bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from core.files import make_folder, replacing
from core.processes.faultpoints import faultpoint
from core.settings.trainers import LocalSettings
from services.inference import access
from services.inference.client import InferenceClient, Reply
from services.inference.encoding import encode_chat
from services.inference.engines.base import Completion, Prompt
from services.inference.engines.embedded import TransformersEngine
from services.inference.serve import ServeError, swap_in
from trainers.base import SamplerService, SolverJob, TrainError, TrainJob
from trainers.folders import appearing, remove
from trainers.local.batches import split_rows
from trainers.local.checkpoints import complete_weights
from trainers.local.grpo import token_logprobs
from trainers.local.ranks import Ranks
from trainers.local.sharding import unsharded
from trainers.local.state import Metrics, ahead_file
from trainers.schedule import rollouts_at

_KEPT = 2  # folders with weights
_SHARD = "2GB"  # of one file of weights: their digests are computed at the same time


@dataclass(frozen=True, slots=True)
class Sampler:
    """Every rank has one, and makes each call together with the others."""

    # Takes a step and its prompts, and returns a completion for each prompt and the figures of the sampling.
    sample: Callable[[int, Sequence[Prompt]], tuple[list[Completion], Metrics]]
    sample_more: Callable[[Sequence[Prompt]], list[Completion]]  # further prompts of the same step
    save: Callable[[int], None]  # before a step is saved
    close: Callable[[], None]  # when the job is done


def make_sampler(job: TrainJob, settings: LocalSettings, engine: TransformersEngine, ranks: Ranks) -> Sampler:
    """What samples the rollouts of `job` from the model of `engine`, which is the policy."""
    if job.sampler is None:
        here = partial(_sample_here, engine, ranks)
        return Sampler(lambda _, prompts: (here(prompts), {}), here, lambda _: None, lambda: None)
    application = _Application(job, job.sampler, settings.tokens_per_micro_batch, engine, ranks)
    return Sampler(application.sample, application.sample_more, application.save, application.close)


def _sample_here(engine: TransformersEngine, ranks: Ranks, prompts: Sequence[Prompt]) -> list[Completion]:
    with unsharded(engine.model):
        return ranks.map(prompts, lambda own: [group[0] for group in engine.generate(own)])


class _Application:
    """Rank 0 writes the weights and has them swapped in; all ranks ask."""

    def __init__(
        self,
        job: TrainJob,
        service: SamplerService,
        most_tokens: int | None,
        engine: TransformersEngine,
        ranks: Ranks,
    ) -> None:
        self._job, self._service, self._engine, self._ranks = job, service, engine, ranks
        self._most_tokens = most_tokens  # of a forward pass
        self._folders = list[Path]()  # of this rank, the oldest first
        self._checkpoint = ""  # that the application holds
        self._thread = ThreadPoolExecutor(1, "ahead")
        self._asked: Future[list[Reply]] | None = None  # this rank's share of what is sampled ahead
        self._ready: list[Completion] | None = None  # what was sampled ahead for all ranks
        self._root = _root(job, service)
        if ranks.rank == 0:
            shutil.rmtree(self._root, ignore_errors=True)  # of an attempt that was killed

    def sample(self, step: int, prompts: Sequence[Prompt]) -> tuple[list[Completion], Metrics]:
        """Swap in the weights as they are before `step`, and sample. With `ahead`, take what was sampled before, and
        begin with the next step's. Raises `TrainError` if the application does not take the weights, and
        `InferenceError`."""
        ahead, has_next = self._sampled_ahead(step), self._service.ahead > 0 and step < self._job.training.steps
        refills = self._job.training.refill > 0  # from the policy as it is, whoever sampled the others
        figures = self._swap(step - 1) if ahead is None or has_next or refills else {}
        completions = self.sample_more(prompts) if ahead is None else ahead
        if has_next:
            own = self._ranks.own(rollouts_at(self._job, step + 1))
            self._asked = self._thread.submit(self._ask, own)
        if self._service.ahead:
            figures["staleness"] = float(ahead is not None)
        return completions, figures

    def sample_more(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Sample from the weights that were swapped in last."""
        return self._completions(prompts, self._ranks.map(prompts, self._ask))

    def save(self, step: int) -> None:
        """Keep what was sampled ahead of the step after `step`: a training that is resumed has no longer the weights
        that it was sampled from."""
        if self._asked is None:
            return
        self._ready = self._sampled_ahead(step + 1)
        if self._ranks.rank == 0:
            file = ahead_file(self._job.work_dir, step + 1)
            make_folder(file.parent)
            with replacing(file) as temporary:
                temporary.write_text(json.dumps([astuple(completion) for completion in self._ready or ()]))

    def close(self) -> None:
        """Remove the weights. After an error they stay until the job begins again, or Ray stops."""
        self._thread.shutdown()  # a guard that ends the job leaves the next step's rollouts
        for folder in self._folders:
            remove(folder)
        with suppress(OSError):  # another process has the job, and writes its own
            self._root.rmdir()

    def _sampled_ahead(self, step: int) -> list[Completion] | None:
        """The completions of `step`, on every rank, if they were asked for before it; waits for them."""
        ready, asked, self._ready, self._asked = self._ready, self._asked, None, None
        if ready is not None:
            return ready
        if asked is not None:
            prompts = rollouts_at(self._job, step)
            return self._completions(prompts, self._ranks.map(prompts, lambda _: asked.result()))
        file, read = ahead_file(self._job.work_dir, step), None
        if self._service.ahead and self._ranks.rank == 0 and file.exists():
            rows = json.loads(file.read_text())
            read = [Completion(text, tuple(tokens), tuple(logprobs), *rest) for text, tokens, logprobs, *rest in rows]
        return self._ranks.agree(read)

    def _completions(self, prompts: Sequence[Prompt], replies: Sequence[Reply]) -> list[Completion]:
        """The replies as completions. Figures that they lack are those of the policy as it is now."""
        completions = [_completion(reply) for reply in replies]
        if _lacks_figures(self._job, self._service, replies):
            with unsharded(self._engine.model):
                pairs = list(zip(prompts, completions, strict=True))
                completions = self._ranks.map(pairs, self._with_own_figures)
        return completions

    def _ask(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """One reply to each prompt, from the weights that were swapped in last."""
        client = InferenceClient(self._service.url, self._service.application, token_logprobs=True)
        return [group[0] for group in client.generate(prompts, self._checkpoint)]

    def _swap(self, done: int) -> Metrics:
        """Have the application hold the policy after `done` steps; returns the figures of the swap."""
        started = time.monotonic()
        dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[self._service.dtype]
        weights = complete_weights(self._engine.model, self._ranks.rank == 0, dtype)
        published = ("", 0) if weights is None else self._publish(self._job.steps_before + done, weights)
        self._checkpoint, size = self._ranks.agree(published)
        return {"swap_seconds": time.monotonic() - started, "swap_bytes": float(size)}

    def _publish(self, done: int, weights: dict[str, torch.Tensor]) -> tuple[str, int]:
        """Returns the checkpoint's name, and the bytes of its weights."""
        job, service = self._job, self._service
        folder = self._root / f"{done}-{uuid4().hex[:8]}"  # a process that has lost the job never writes the same
        size = write_weights(folder, weights, self._engine.model, Path(job.start.path))
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
        model, tokenizer, training = self._engine.model, self._engine.tokenizer, self._job.training
        rows = [[*encode_chat(tokenizer, prompt.messages), *completion.tokens] for prompt, completion in pairs]
        result, lengths = [completion for _, completion in pairs], [len(row) for row in rows]
        by_length = sorted(range(len(rows)), key=lengths.__getitem__)
        for part in split_rows(lengths, training.micro_batch, self._most_tokens, by_length):
            ids = torch.zeros(len(part), lengths[part[-1]], dtype=torch.long)
            mask = torch.zeros_like(ids, dtype=torch.bool)
            for row, i in enumerate(part):
                ids[row, : lengths[i]] = torch.tensor(rows[i])
                mask[row, lengths[i] - len(result[i].tokens) : lengths[i]] = True
            figures = token_logprobs(model, ids.to(model.device), mask.to(model.device), training.sampling.temperature)
            for row, i in enumerate(part):
                own, entropies = (tensor[row].cpu()[mask[row]] for tensor in figures)
                logprobs = result[i].logprobs if self._service.logprobs_comparable else tuple(own.tolist())
                result[i] = replace(result[i], logprobs=logprobs, mean_entropy=float(entropies.mean()))
        return result


def _lacks_figures(job: TrainJob, service: SamplerService, replies: Sequence[Reply]) -> bool:
    """Whether log-probabilities are of another distribution, or entropies are missing, or rewarded and not exact."""
    rewarded = isinstance(job, SolverJob) and "mean_entropy" in job.reward.needs
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
    """The folder of the job's weights: in memory if this machine has the private folder for it, else in `work_dir`."""
    memory = service.memory
    if memory is None or not memory.is_dir():
        return job.work_dir / "weights"
    status = memory.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise TrainError(f"{job.key}: {memory}: expected a folder that only user {os.getuid()} may enter")
    return memory / hashlib.sha256(str(job.work_dir).encode()).hexdigest()[:16]


def write_weights(folder: Path, weights: dict[str, torch.Tensor], model: Any, start: Path) -> int:
    """Write a model folder that appears when it is complete; returns the bytes of its weights."""
    with appearing(folder) as temporary:
        model.save_pretrained(temporary, state_dict=weights, max_shard_size=_SHARD)
        others = [file for file in start.iterdir() if file.is_file() and ".safetensors" not in file.name]
        for file in others:
            if file.name != "manifest.json" and not (temporary / file.name).exists():
                (temporary / file.name).symlink_to(file.resolve())
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
