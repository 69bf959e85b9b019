"""The models that can be evaluated: a run's checkpoint, a folder with a Hugging Face model, or an OpenAI-compatible
URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from core.asking.service import Service
from core.errors import CoevoError
from core.settings.serving import Serving
from core.settings.templates import RZERO_SOLVER, SolverTemplate
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.evaluation.answering import SMALL_BATCH, Ask, Batches
from orchestrator.installation import cluster
from orchestrator.installation.home import Home
from orchestrator.run import BATCH
from orchestrator.serving.applications import engine_of, refuse_missing_engine
from orchestrator.serving.checkpoints import serve_checkpoints
from orchestrator.serving.turns import exclusive_use
from services.evaluations.figures import RUN_MODEL, servable_checkpoint
from services.inference.client import InferenceClient, Reply
from services.inference.engines.base import Prompt
from services.inference.external import RequestRefused, ask_each
from services.inference.external_chats import ask_chat
from services.inference.keys import keys_of
from storage.files.checkpoints import link
from storage.session import Store

_BATCHES_AT_ONCE, _REQUESTS_PER_BATCH = 8, 16  # that a URL is asked


class EvaluationError(CoevoError):
    """A model that cannot be evaluated; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model to evaluate. `identity` and `engine` go into the manifest.

    `serve` makes it ready and gives the function that asks it. It waits while another process uses the applications,
    and calls its argument with that one's name. `join` raises `NotUp` at once if it needs services that are not up. It
    returns why the model cannot be asked greedily, or None if it can.
    """

    name: str
    identity: dict[str, Any]
    engine: dict[str, Any]
    serve: Callable[[Callable[[str], None]], AbstractContextManager[Ask]]
    checkpoint: str | None = None  # the id, if it is a run's
    template: SolverTemplate = RZERO_SOLVER  # how its run asks it; R-Zero's if it is no run's
    join: Callable[[], str | None] = lambda: None


def find_model(home: Home, store: Store, text: str, serving: Serving | None, service: Service | None) -> Model:
    """The model that `text` names, a run's (`services.evaluations.figures.RUN_MODEL`) or a folder; or that of
    `service`, if it is given.

    `serving` replaces the run's own applications, or the embedded engine for a folder. Raises `EvaluationError`,
    `StoreError`, `CheckpointError`, `ConfigError`, `InferenceError`.
    """
    if service is not None:
        keys_of([service])
        identity = {"url": service.url, "model": service.model}
        name = f"{service.url}#{service.model}"
        refusal = partial(_refusal_of_greedy, service)
        asks = partial(_replies, service)
        return Model(name, identity, {"name": "openai"}, lambda _waiting: nullcontext(asks), join=refusal)
    if match := RUN_MODEL.fullmatch(text):
        with store.read() as session:
            checkpoint, config = servable_checkpoint(session, match[1], match[2])
        serving, template = serving or config.serving, config.solver.template
        known: str | None = checkpoint.id
        name, identity = checkpoint.id, {"checkpoint": checkpoint.id, "sha256": checkpoint.sha256}
    elif (Path(text) / "config.json").is_file():
        folder, serving, template, known = Path(text).resolve(), serving or Serving(), RZERO_SOLVER, None
        # In the form in which checkpoints are served: a folder of links with a manifest.
        target, sha256 = link(folder, home.work / "_models")
        checkpoint = Checkpoint(f"{folder.name}@{sha256[:12]}", "", "base", 0, 0, str(target), sha256, None)
        name, identity = str(folder), {"folder": str(folder), "sha256": checkpoint.sha256}
    else:
        raise EvaluationError(
            "model: expected RUN:ITERATION, RUN:base, RUN:best, RUN:labelled/ITERATION, a folder with a Hugging Face "
            f"model, or a URL with --model, got {text!r}"
        )
    refuse_missing_engine(serving.applications)
    serve = partial(_served, home, checkpoint, serving)

    def join() -> None:
        cluster.join(home)

    return Model(name, identity, engine_of(serving.applications), serve, known, template, join)


@contextmanager
def _served(home: Home, checkpoint: Checkpoint, serving: Serving, waiting: Callable[[str], None]) -> Iterator[Ask]:
    services = cluster.join(home)
    with exclusive_use(home, f"the evaluation of {checkpoint.id}", waiting):
        serve_checkpoints(services, {"solver": checkpoint}, serving)
        client = InferenceClient(services.endpoint("solver"), "solver")
        at_once = serving.batches * BATCH // SMALL_BATCH  # as many questions as a run asks at once
        yield lambda batches: closing(client.generate_in_turn(batches, checkpoint.id, at_once))


def _refusal_of_greedy(service: Service) -> str | None:
    """How the service refuses a greedy question, as reasoning models do that have one temperature only; None if it
    answers. Nothing was stored or paid for before. Raises `InferenceError`."""
    prompt = Prompt(({"role": "user", "content": "1 + 1?"},), 0, 1, Sampling(temperature=0, max_tokens=16))
    try:
        asyncio.run(_ask_batch(service, [prompt]))
    except RequestRefused as error:
        return f"{service.model} refused temperature 0: {error}"
    return None


@contextmanager
def _replies(service: Service, batches: Batches) -> Iterator[Iterator[list[list[Reply]]]]:
    """The replies of a service, a few batches at a time, in their order."""
    with ThreadPoolExecutor(_BATCHES_AT_ONCE) as threads:
        try:
            yield threads.map(lambda batch: asyncio.run(_ask_batch(service, batch)), batches)
        finally:
            threads.shutdown(cancel_futures=True)


async def _ask_batch(service: Service, prompts: Sequence[Prompt]) -> list[list[Reply]]:
    """One request for each answer, because not every service gives several at once."""
    requests = [(prompt, j) for prompt in prompts for j in range(prompt.n)]
    answers = iter(await ask_each(service, requests, partial(_ask_once, service), _REQUESTS_PER_BATCH))
    return [[next(answers) for _ in range(prompt.n)] for prompt in prompts]


async def _ask_once(service: Service, http: aiohttp.ClientSession, request: tuple[Prompt, int]) -> Reply:
    prompt, j = request
    seed = (prompt.seed + j) % 2**31  # some services take 32 bits
    sampling = prompt.sampling
    chat = await ask_chat(
        http,
        service,
        prompt.messages,
        sampling.max_tokens,
        seed=seed,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,  # not in OpenAI's API; a service that does not know it refuses the request
    )
    return Reply(chat.text, chat.tokens, chat.finish_reason, None, None, service.model, seed, chat.prompt_tokens)
