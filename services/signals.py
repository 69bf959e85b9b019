"""Signals that need a model of their own: embeddings and strategies, from OpenAI-compatible services or without one.

A service that cannot be reached ends in an error, after its attempts: a signal is never made up. A judge whose replies
cannot be read is another matter: that group's strategies are unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import aiohttp
import numpy as np
from numpy.typing import NDArray

from core.methods import Method
from core.rollouts.embedding import hashed_embeddings, reasoning_part
from core.rollouts.strategies import judge_messages, parse_clusters, skeleton_clusters
from core.settings.serving import Service, Signals
from core.types import Group
from services.inference.client import InferenceError
from services.inference.external import ask_each, post

_TEXTS_A_REQUEST = 128
_CONCURRENCY = 32
_JUDGE_TOKENS_A_RESPONSE = 120  # for its chain of thought and its number

Responses = Sequence[str]


def embed(signals: Signals, responses: Responses) -> NDArray[np.float64]:
    """Embeddings (N, D) of N responses' reasoning, in their order. Raises `InferenceError`."""
    if signals.embedder == "hashing":
        return hashed_embeddings(responses)
    service = _service(signals.embedder)
    texts = [reasoning_part(response) for response in responses]
    parts = [texts[at : at + _TEXTS_A_REQUEST] for at in range(0, len(texts), _TEXTS_A_REQUEST)]
    return np.concatenate(asyncio.run(ask_each(service, parts, partial(_embed_part, service), _CONCURRENCY)))


def cluster(signals: Signals, groups: Sequence[tuple[str, Responses]]) -> list[tuple[int, ...] | None]:
    """The strategies of each (question, responses); None where a judge could not be understood.

    A judge is asked again, with another seed, as long as its reply is not what was asked for, `attempts` times in all.
    Raises `InferenceError`.
    """
    if signals.clusterer == "skeleton":
        return [skeleton_clusters(responses) for _, responses in groups]
    service = _service(signals.clusterer)
    return asyncio.run(ask_each(service, groups, partial(_judge_group, service), _CONCURRENCY))


def with_signals(
    groups: Sequence[Group], texts: Sequence[tuple[str, Responses]], method: Method, signals: Signals
) -> list[Group]:
    """The groups with the embeddings and strategies that `method` needs; `texts` are each group's question and its
    responses. Raises `InferenceError`."""
    heard = list(groups)
    if "embeddings" in method.needs and groups:
        rows = embed(signals, [text for _, responses in texts for text in responses])
        ends = np.cumsum([len(responses) for _, responses in texts])[:-1]
        heard = [
            replace(group, embeddings=embeddings) for group, embeddings in zip(heard, np.split(rows, ends), strict=True)
        ]
    if "clusters" in method.needs:
        heard = [
            replace(group, clusters=clusters) for group, clusters in zip(heard, cluster(signals, texts), strict=True)
        ]
    return heard


def _service(service: Service | str) -> Service:
    if isinstance(service, Service):
        return service
    raise InferenceError(f"signals: expected the address of a service, got {service!r}, which a run's stage replaces")


async def _embed_part(service: Service, http: aiohttp.ClientSession, texts: Sequence[str]) -> NDArray[np.float64]:
    reply = await post(http, service, "embeddings", {"model": service.model, "input": list(texts)})
    try:
        rows = {int(row["index"]): row["embedding"] for row in reply["data"]}
        embeddings = np.array([rows[i] for i in range(len(texts))], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise InferenceError(f"{service.url}: embeddings: not what OpenAI's API returns: {error!r}") from error
    if embeddings.ndim != 2 or not np.isfinite(embeddings).all():
        raise InferenceError(f"{service.url}: embeddings: expected {len(texts)} rows of finite numbers")
    return embeddings


async def _judge_group(
    service: Service, http: aiohttp.ClientSession, group: tuple[str, Responses]
) -> tuple[int, ...] | None:
    question, responses = group
    for attempt in range(service.attempts):
        body = {
            "model": service.model,
            "messages": judge_messages(question, responses),
            "max_tokens": _JUDGE_TOKENS_A_RESPONSE * len(responses),
            "temperature": 0.0 if attempt == 0 else 0.7,  # the same question at 0 would get the same reply
            "seed": attempt,
        }
        reply = await post(http, service, "chat/completions", body)
        try:
            text = reply["choices"][0]["message"]["content"]
        except (KeyError, TypeError, IndexError) as error:
            raise InferenceError(f"{service.url}: chat: not what OpenAI's API returns: {error!r}") from error
        if isinstance(text, str) and (clusters := parse_clusters(text, len(responses))) is not None:
            return clusters
    return None
