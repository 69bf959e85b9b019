"""The Ray Serve application of one role: an OpenAI-compatible server whose weights are swapped in place.

`deploy/serve/embedded.yaml` builds two of them, `challenger` and `solver`. Which checkpoint a replica holds is its
deployment's `user_config`: a change of it reaches every replica without a restart, and a replica that Serve starts anew
after a crash gets the current one.
"""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict
from ray import serve
from ray.serve import Application

from core.config import Sampling
from core.prompts import solver_messages
from services.inference.engine import Completion, Engine, ModelMismatch, Prompt, PromptTooLong
from services.inference.openai_api import ChatRequest, ChatResponse, Model, ModelList, chat_response
from services.inference.served import CANARY, CANARY_TOKENS, CanaryFailed, Served
from services.inference.transformers_engine import TransformersEngine
from storage.checkpoints import verify

api = FastAPI(title="coevo inference")


class ServerArgs(BaseModel):
    """Arguments of `build`, from the Serve config file."""

    model_config = ConfigDict(extra="forbid")

    role: str
    device: str = "cpu"
    max_rows: int = 512  # rows sampled together


@serve.deployment(max_ongoing_requests=1024)
@serve.ingress(api)
class ModelServer:
    """One replica: one engine, one thread that samples."""

    def __init__(self, args: ServerArgs) -> None:
        self._args = args
        self._engine: Engine | None = None
        self._served: Served | None = None
        self._told = False  # what to hold
        self._sampling = ThreadPoolExecutor(1)
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
            self._engine = TransformersEngine(served.folder, self._args.device, self._args.max_rows)
        canary = Prompt(tuple(solver_messages(CANARY)), 0, 1, Sampling(temperature=0, max_tokens=CANARY_TOKENS))
        if not math.isfinite(self._engine.generate([canary])[0][0].mean_entropy):
            raise CanaryFailed(f"checkpoint {served.checkpoint}: the canary prompt gave logits that are not finite")
        self._served = served

    async def check_health(self) -> None:
        if self._told and self._served is None and not self._busy.locked():
            raise RuntimeError(f"{self._args.role}: no checkpoint is loaded")

    # A stage's requests come within this time. Those that came later would wait for the whole batch before them, which
    # takes seconds: with a tenth of it a model of 27M parameters served 0.87 of what it does alone, and so 0.92.
    @serve.batch(max_batch_size=256, batch_wait_timeout_s=0.1)
    async def _sample(self, prompts: list[Prompt]) -> list[tuple[str, list[Completion]]]:
        async with self._busy:
            if self._served is None or self._engine is None:
                raise RuntimeError(f"{self._args.role}: no checkpoint is loaded")
            loop = asyncio.get_running_loop()
            completions = await loop.run_in_executor(self._sampling, self._engine.generate, prompts)
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
        checkpoint, completions = await self._sample(prompt)
        self._refuse_other(request, checkpoint)  # it may have been swapped while this request waited
        return chat_response(self._args.role, checkpoint, completions, request.logprobs)

    @api.get("/v1/models")
    async def models(self) -> ModelList:
        data = [Model(id=self._args.role, checkpoint=s.checkpoint, sha256=s.sha256)] if (s := self._served) else []
        return ModelList(data=data)

    def _refuse_other(self, request: ChatRequest, checkpoint: str | None) -> None:
        """`checkpoint` is None while one is swapped in: a request waits until it is known which."""
        if request.model != self._args.role:
            raise HTTPException(404, f"model: expected {self._args.role!r}, got {request.model!r}")
        if checkpoint is not None and request.policy_version not in (None, checkpoint):
            raise HTTPException(
                409, f"policy_version {request.policy_version!r}: {self._args.role} holds {checkpoint!r}"
            )


def build(args: dict[str, Any]) -> Application:
    """The application that the Serve config file names as `services.inference.app:build`."""
    deployment: Any = ModelServer
    application: Application = deployment.bind(ServerArgs.model_validate(args))
    return application
