"""Computes the signals that may need another model: embeddings and strategies of responses.

They come from OpenAI-compatible services, or from simple substitutes that need no service. If a service cannot be
reached after all attempts, an error is raised: a signal is never made up. If a judge's replies cannot be read, no error
is raised, but the strategies of that group are unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import aiohttp
import numpy as np
from numpy.typing import NDArray

from core.asking.service import Service
from core.methods import Method
from core.rollouts.embedding import hashed_embeddings, reasoning_part
from core.rollouts.strategies import answer_clusters, judge_messages, parse_clusters, skeleton_clusters
from core.settings.serving import Signals
from core.types import Group
from services.inference.client import InferenceError
from services.inference.external import ask_each, post
from services.inference.external_chats import ask_chat

_TEXTS_PER_REQUEST = 128
_CONCURRENCY = 32  # requests at once
_JUDGE_TOKENS_PER_RESPONSE = 120  # for a response's chain of thought and number in the judge's reply

Responses = Sequence[str]


def embed(signals: Signals, responses: Responses) -> NDArray[np.float64]:
    """Embeddings (N, D) of the reasoning of N responses, in their order. Raises `InferenceError`."""
    if signals.embedder == "hashing":
        return hashed_embeddings(responses)
    service = _service(signals.embedder)
    texts = [reasoning_part(response) for response in responses]
    batches = [texts[start : start + _TEXTS_PER_REQUEST] for start in range(0, len(texts), _TEXTS_PER_REQUEST)]
    rows = asyncio.run(ask_each(service, batches, partial(_embed_batch, service), _CONCURRENCY))
    if len(lengths := {batch.shape[1] for batch in rows}) > 1:
        raise InferenceError(f"{service.url}: embeddings: expected rows of one length, got {sorted(lengths)}")
    return np.concatenate(rows)


def cluster(
    signals: Signals, groups: Sequence[Group], texts: Sequence[tuple[str, Responses]]
) -> list[tuple[int, ...] | None]:
    """The cluster of each response of each group; None for a group if the judge's replies could not be read.

    `texts` are each group's question and its responses. Responses of one cluster use the same strategy. A judge whose
    reply cannot be read is asked again with another seed, up to `service.attempts` times in all. Raises
    `InferenceError`.
    """
    if signals.clusterer == "skeleton":
        return [skeleton_clusters(responses) for _, responses in texts]
    if signals.clusterer == "answer":
        return [answer_clusters(group.classes) for group in groups]
    service = _service(signals.clusterer)
    return asyncio.run(ask_each(service, texts, partial(_judge_group, service), _CONCURRENCY))


def with_signals(
    groups: Sequence[Group], texts: Sequence[tuple[str, Responses]], method: Method, signals: Signals
) -> list[Group]:
    """The groups with the embeddings and strategies that `method` needs or that are measured; `texts` are each group's
    question and its responses. Raises `InferenceError`."""
    result, computed = list(groups), signals.computed_for(method)
    if "embeddings" in computed and groups:
        rows = embed(signals, [text for _, responses in texts for text in responses])
        ends = np.cumsum([len(responses) for _, responses in texts])[:-1]
        result = [
            replace(group, embeddings=embeddings)
            for group, embeddings in zip(result, np.split(rows, ends), strict=True)
        ]
    if "clusters" in computed:
        clusters = cluster(signals, result, texts)
        result = [replace(group, clusters=of_group) for group, of_group in zip(result, clusters, strict=True)]
    return result


def _service(service: Service | str) -> Service:
    if isinstance(service, Service):
        return service
    raise InferenceError(
        f"signals: expected the url and model of a service, got {service!r}, which only a stage of a run replaces by "
        "the address of the run's own application"
    )


async def _embed_batch(service: Service, http: aiohttp.ClientSession, texts: Sequence[str]) -> NDArray[np.float64]:
    reply = await post(http, service, "embeddings", {"model": service.model, "input": list(texts)})
    try:
        rows = {int(row["index"]): row["embedding"] for row in reply["data"]}
        embeddings = np.array([rows[i] for i in range(len(texts))], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:  # OverflowError: a number beyond those of NumPy
        raise InferenceError(
            f"{service.url}: embeddings: expected a reply in the format of OpenAI's API, got another: {error!r}"
        ) from error
    if embeddings.ndim != 2 or not np.isfinite(embeddings).all():
        raise InferenceError(
            f"{service.url}: embeddings: expected {len(texts)} rows of finite numbers, got shape {embeddings.shape} or "
            "numbers that are not finite"
        )
    return embeddings


async def _judge_group(
    service: Service, http: aiohttp.ClientSession, group: tuple[str, Responses]
) -> tuple[int, ...] | None:
    question, responses = group
    for attempt in range(service.attempts):
        reply = await ask_chat(
            http,
            service,
            judge_messages(question, responses),
            _JUDGE_TOKENS_PER_RESPONSE * len(responses),
            seed=attempt,
            temperature=0.0 if attempt == 0 else 0.7,  # at temperature 0 the same question would get the same reply
            any_temperature=True,
        )
        if (clusters := parse_clusters(reply.text, len(responses))) is not None:
            return clusters
    return None
