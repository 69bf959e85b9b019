"""The Ray Serve application of one role: an OpenAI-compatible server whose weights are swapped in place.

`deploy/serve/embedded.yaml` builds two of them, `challenger` and `solver`. Which checkpoint a replica holds is its
deployment's `user_config`: a change of it reaches every replica without a restart, and a replica that Serve starts anew
after a crash gets the current one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt
from ray import serve
from ray.serve import Application

from core.questions.prompts import solver_messages
from core.settings.training import Sampling
from services.inference.engines.base import (
    MAX_ROWS,
    WAITING_ROWS,
    Completion,
    Engine,
    ModelMismatch,
    Prompt,
    PromptTooLong,
)
from services.inference.openai_api import (
    ChatBatchRequest,
    ChatBatchResponse,
    ChatRequest,
    ChatResponse,
    Model,
    ModelList,
    chat_response,
)
from services.inference.server.batching import Batcher
from services.inference.server.served import CANARY, CANARY_TOKENS, CanaryFailed, Served
from storage.checkpoints import verify

_log = logging.getLogger("ray.serve")  # the replica's own file in Ray's logs

# Rows of a batch, in multiples of those that are sampled together: the engine sorts them by the lengths of their
# prompts, and the fewer batches, the fewer rows are left over. A swap waits for a whole batch, and at the end of a
# stage one replica waits for the other's last one.
_CALLS = 2

api = FastAPI(title="coevo inference")


class ServerArgs(BaseModel):
    """Arguments of `build`, from the Serve config file."""

    model_config = ConfigDict(extra="forbid")

    role: str
    device: str = "cpu"
    max_rows: PositiveInt = MAX_ROWS  # completions sampled together
    waiting_rows: NonNegativeInt = WAITING_ROWS  # more that may be in memory, the last ones of a batch


@serve.deployment(max_ongoing_requests=1024)
@serve.ingress(api)
class ModelServer:
    """One replica: one engine, one thread that samples."""

    def __init__(self, args: ServerArgs) -> None:
        # Here, in the replica: Serve imports this module in another process first, which has no use for them.
        import torch

        from services.inference.engines.embedded import TransformersEngine

        self._load: Callable[[Path], Engine] = partial(
            TransformersEngine, device=args.device, max_rows=args.max_rows, waiting_rows=args.waiting_rows
        )
        self._args = args
        self._engine: Engine | None = None
        self._served: Served | None = None
        self._told = False  # what to hold
        self._sampling = ThreadPoolExecutor(1)
        self._batcher = Batcher(self._sample, _CALLS * args.max_rows)
        # Held while a batch is sampled and while weights are swapped: a swap waits for the batch under way, and
        # requests that come meanwhile wait for the swap.
        self._busy = asyncio.Lock()
        if args.device == "cpu":
            torch.set_num_threads(1)  # reproducible sums; several replicas use several cores

    async def reconfigure(self, user_config: dict[str, str]) -> None:
        """Swap in a checkpoint: pause, verify its manifest, load, canary, resume. Serve reports what this raises."""
        served, self._told = Served.model_validate(user_config), True
        async with self._busy:
            await asyncio.get_running_loop().run_in_executor(self._sampling, self._swap, served)

    def _swap(self, served: Served) -> None:
        if served == self._served:
            return
        verify(served.folder, served.sha256)
        self._served = None
        try:
            if self._engine is not None:
                self._engine.load(served.folder)
        except ModelMismatch:  # another architecture: a run with another base model
            self._engine = None  # first, so that two never share the memory
        if self._engine is None:
            self._engine = self._load(served.folder)
        canary = Prompt(tuple(solver_messages(CANARY)), 0, 1, Sampling(temperature=0, max_tokens=CANARY_TOKENS))
        if not math.isfinite(self._engine.generate([canary])[0][0].mean_entropy):
            raise CanaryFailed(f"checkpoint {served.checkpoint}: the canary prompt gave logits that are not finite")
        self._served = served

    async def check_health(self) -> None:
        if self._told and self._served is None and not self._busy.locked():
            raise RuntimeError(f"{self._args.role}: no checkpoint is loaded")

    async def _sample(self, prompts: list[Prompt]) -> list[tuple[str, list[Completion]]]:
        async with self._busy:
            if self._served is None or self._engine is None:
                raise RuntimeError(f"{self._args.role}: no checkpoint is loaded")
            loop, began = asyncio.get_running_loop(), time.perf_counter()
            completions = await loop.run_in_executor(self._sampling, self._engine.generate, prompts)
            _log.info(
                "sampled %d completions of %d prompts, %d tokens, in %.3f s",
                sum(map(len, completions)),
                len(prompts),
                sum(len(completion.tokens) for group in completions for completion in group),
                time.perf_counter() - began,
            )
            return [(self._served.checkpoint, group) for group in completions]

    @api.post("/v1/chat/completions")
    async def chat(self, request: ChatRequest) -> ChatResponse:
        self._refuse_other(request, self._served.checkpoint if self._served else None)
        prompt = request.prompt()
        try:
            if self._engine is not None:
                self._engine.check(prompt)
        except PromptTooLong as error:
            raise HTTPException(400, str(error)) from error
        checkpoint, completions = await self._batcher.ask(prompt)
        self._refuse_other(request, checkpoint)  # it may have been swapped while this request waited
        return chat_response(self._args.role, checkpoint, completions, request.logprobs)

    @api.post("/v1/chat/completions/batch")
    async def chats(self, batch: ChatBatchRequest) -> ChatBatchResponse:
        """Several chats; one that is refused has all of them refused."""
        return ChatBatchResponse(responses=await asyncio.gather(*map(self.chat, batch.requests)))

    @api.get("/v1/models")
    async def models(self) -> ModelList:
        if (served := self._served) is None:
            return ModelList(data=[])
        model = Model(id=self._args.role, checkpoint=served.checkpoint, sha256=served.sha256, batches=True)
        return ModelList(data=[model])

    def _refuse_other(self, request: ChatRequest, checkpoint: str | None) -> None:
        """`checkpoint` is None while one is swapped in: a request waits until it is known which."""
        if request.model != self._args.role:
            raise HTTPException(404, f"model: expected {self._args.role!r}, got {request.model!r}")
        if checkpoint is not None and request.policy_version not in (None, checkpoint):
            raise HTTPException(
                409, f"policy_version {request.policy_version!r}: {self._args.role} holds {checkpoint!r}"
            )


def build(args: dict[str, Any]) -> Application:
    """The application that the Serve config file names as `services.inference.server.app:build`."""
    deployment: Any = ModelServer
    application: Application = deployment.bind(ServerArgs.model_validate(args))
    return application
