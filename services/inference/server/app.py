"""The Ray Serve application of one role: an OpenAI-compatible server whose weights are swapped in place.

`deploy/serve/embedded.yaml` builds two of them, `challenger` and `solver`. The `user_config` of a deployment says which
checkpoint its replicas hold. Serve sends a change of it to every replica without a restart, and a replica that Serve
restarts after a crash gets the current one.
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
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt
from ray import serve
from ray.serve import Application

from core.logs import take_secrets_out
from core.processes.imports import collection_paused
from core.settings.training import Sampling
from core.texts.unicode import to_json
from services.inference.engines.base import MAX_ROWS, WAITING_ROWS, Completion, ModelMismatch, Prompt, PromptRefused
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
from storage.files.checkpoints import verify

if TYPE_CHECKING:
    from services.inference.engines.embedded import TransformersEngine

_log = logging.getLogger("ray.serve")  # writes to the replica's own file in Ray's logs, in Ray's form

# The rows of a batch, as a multiple of the rows that the engine samples together. The engine groups the rows by the
# lengths of their prompts, so larger batches leave fewer rows that are sampled in small groups. But a swap waits for a
# whole batch, and at the end of a stage one replica waits for the last batch of the other.
_BATCH_MULTIPLE = 2

api = FastAPI(title="coevo inference")


@api.exception_handler(RequestValidationError)
async def _invalid(_request: Request, error: RequestValidationError) -> Response:
    """FastAPI's own answer repeats what came, which UTF-8 cannot hold if it has a lone surrogate."""
    detail = [{name: details[name] for name in ("type", "loc", "msg")} for details in error.errors()]
    return Response(to_json({"detail": detail}), 422, media_type="application/json")


class ServerArgs(BaseModel):
    """Arguments of `build`, from the Serve config file."""

    model_config = ConfigDict(extra="forbid")

    role: str
    device: str = "cpu"
    max_rows: PositiveInt = MAX_ROWS  # completions sampled together
    waiting_rows: NonNegativeInt = WAITING_ROWS  # further completions in memory, which wait for the next batch


@serve.deployment(max_ongoing_requests=1024)
@serve.ingress(api)
class ModelServer:
    """One replica: one engine, and one thread that samples."""

    def __init__(self, args: ServerArgs) -> None:
        _log.addFilter(take_secrets_out)
        # Imported here, in the replica, because Serve first imports this module in a process that does not need them.
        with collection_paused():
            import torch

            from services.inference.engines.embedded import TransformersEngine

        self._load: Callable[[Path], TransformersEngine] = partial(
            TransformersEngine, device=args.device, max_rows=args.max_rows, waiting_rows=args.waiting_rows
        )
        self._args = args
        self._engine: TransformersEngine | None = None
        self._served: Served | None = None
        self._configured = False  # whether Serve has sent a checkpoint
        self._sampling = ThreadPoolExecutor(1)
        self._batcher = Batcher(self._sample, _BATCH_MULTIPLE * args.max_rows)
        # Held while a batch is sampled or weights are swapped. So a swap waits for the current batch, and requests that
        # arrive meanwhile wait for the swap.
        self._busy = asyncio.Lock()
        if args.device == "cpu":
            torch.set_num_threads(1)  # makes sums reproducible; several replicas use several cores

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Swap in a checkpoint: pause, verify its manifest, load it, try the canary prompt, resume.

        Serve reports the exceptions.
        """
        served, self._configured = Served.model_validate(user_config), True
        async with self._busy:
            await asyncio.get_running_loop().run_in_executor(self._sampling, self._swap, served)

    def _swap(self, served: Served) -> None:
        if served == self._served:
            return
        if served.published:
            verify(served.folder, served.sha256)
        self._served = None
        try:
            if self._engine is not None:
                self._engine.load(served.folder)
        except ModelMismatch:  # another architecture, because the new run has another base model
            if not served.published:  # it was trained from the model that this replica held
                raise
            self._engine = None  # before the new engine is made, so that only one model is in memory
        if self._engine is None:
            self._engine = self._load(served.folder)
        canary = Prompt(tuple(CANARY), 0, 1, Sampling(temperature=0, max_tokens=CANARY_TOKENS))
        if not math.isfinite(self._engine.generate([canary])[0][0].mean_entropy):
            raise CanaryFailed(f"checkpoint {served.checkpoint}: the canary prompt gave logits that are not finite")
        self._served = served

    async def check_health(self) -> None:
        """Serve restarts the replica if this raises: if it should hold a checkpoint but does not."""
        if self._configured and self._served is None and not self._busy.locked():
            raise RuntimeError(f"{self._args.role}: no checkpoint is loaded")

    async def _sample(self, prompts: list[Prompt]) -> list[tuple[str, list[Completion]]]:
        async with self._busy:
            if self._served is None or self._engine is None:
                raise RuntimeError(f"{self._args.role}: no checkpoint is loaded")
            loop, start = asyncio.get_running_loop(), time.perf_counter()
            completions = await loop.run_in_executor(self._sampling, self._engine.generate, prompts)
            _log.info(
                "sampled %d completions of %d prompts, %d tokens, in %.3f s",
                sum(map(len, completions)),
                len(prompts),
                sum(len(completion.tokens) for group in completions for completion in group),
                time.perf_counter() - start,
                extra={"checkpoint": self._served.checkpoint},
            )
            return [(self._served.checkpoint, group) for group in completions]

    @api.post("/v1/chat/completions")
    async def chat(self, request: ChatRequest) -> ChatResponse:
        self._refuse_mismatch(request, self._served.checkpoint if self._served else None)
        prompt = request.prompt()
        try:
            if self._engine is not None:
                self._engine.check(prompt)
        except PromptRefused as error:
            raise HTTPException(400, str(error)) from error
        checkpoint, completions = await self._batcher.ask(prompt)
        self._refuse_mismatch(request, checkpoint)  # again, because it may have been swapped in the meantime
        return chat_response(self._args.role, checkpoint, completions, request.logprobs, request.token_logprobs)

    @api.post("/v1/chat/completions/batch")
    async def chats(self, batch: ChatBatchRequest) -> ChatBatchResponse:
        """Several chats in one request. If one is refused, all are."""
        return ChatBatchResponse(responses=await asyncio.gather(*map(self.chat, batch.requests)))

    @api.get("/v1/models")
    async def models(self) -> ModelList:
        if (served := self._served) is None:
            return ModelList(data=[])
        model = Model(id=self._args.role, checkpoint=served.checkpoint, sha256=served.sha256, batches=True)
        return ModelList(data=[model])

    def _refuse_mismatch(self, request: ChatRequest, checkpoint: str | None) -> None:
        """Answer 404 if the request names another model, and 409 if it names another checkpoint.

        `checkpoint` is None while one is swapped in. The request is then not refused, but waits for the swap.
        """
        if request.model != self._args.role:
            raise HTTPException(404, f"model: expected {self._args.role!r}, got {request.model!r}")
        if checkpoint is not None and request.policy_version not in (None, checkpoint):
            raise HTTPException(
                409, f"policy_version: {self._args.role} holds {checkpoint!r}, got {request.policy_version!r}"
            )


def build(args: dict[str, Any]) -> Application:
    """Build the application. The Serve config file names this function as `services.inference.server.app:build`."""
    deployment: Any = ModelServer
    application: Application = deployment.bind(ServerArgs.model_validate(args))
    return application
