"""Embeddings and strategies from services, tested with a fake service that fails or replies nonsense on purpose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from core.asking.service import Service
from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.methods.poly_epo import Grpo
from core.rollouts.groups import make_groups
from core.settings.serving import Signals
from core.types import Group
from services.inference.client import InferenceError
from services.inference.signals import cluster, embed, with_signals
from tests.fake_service import fake_service, lengths
from tests.http_server import redirecting


def groups_of(texts: Sequence[tuple[str, Sequence[str]]]) -> list[Group]:
    answers = [[extract_boxed(response) for response in responses] for _, responses in texts]
    return make_groups(answers, [None] * len(texts), Grader())  # which starts no worker: the answers are numbers


def embedding_of_a(service: Service) -> object:
    return embed(Signals(embedder=service), ["a"])


def strategies_of_a(service: Service) -> object:
    texts = [("q", ["a"])]
    return cluster(Signals(clusterer=service), groups_of(texts), texts)


def test_embeddings_are_asked_for_in_parts_and_come_in_the_order_of_the_texts() -> None:
    texts = ["x" * i for i in range(300)]
    with fake_service(lengths) as (service, requests):
        rows = embed(Signals(embedder=service), texts)
    assert rows.tolist() == [[i, 1] for i in range(300)]
    assert sorted(len(body["input"]) for _, body, _ in requests) == [44, 128, 128]
    assert {(path, body["model"]) for path, body, _ in requests} == {("/v1/embeddings", "m")}


@pytest.mark.parametrize("route", ["embeddings", "chat/completions"])
@pytest.mark.parametrize(
    ("status", "reply", "words", "sent"),
    [
        (503, {}, "HTTP 503", 3),
        (400, {"error": "too long"}, "too long", 1),  # the error is permanent, so the request is not sent again
        (200, {"data": [], "choices": []}, "expected", 1),
        (200, {"data": [{"index": 0, "embedding": "none"}]}, "expected", 1),
        (200, {"data": [{"index": 0, "embedding": [1e999]}]}, "expected", 1),
        (200, {"data": [{"index": 1e999, "embedding": [1]}]}, "expected", 1),
        (200, {"data": [{"index": 0, "embedding": [10**400]}]}, "expected", 1),
        (200, {"rows": 1}, "expected", 1),
        (200, [], "expected", 1),
        (200, b"not json", "expected", 1),
    ],
)
def test_a_service_that_fails_raises_an_error(route: str, status: int, reply: Any, words: str, sent: int) -> None:
    ask = embedding_of_a if route == "embeddings" else strategies_of_a
    error = pytest.raises(InferenceError, match=words)
    with fake_service(lambda *_: (status, reply)) as (service, requests), error:
        ask(service)
    assert [path for path, _, _ in requests] == [f"/v1/{route}"] * sent


def test_a_request_that_failed_temporarily_is_sent_again() -> None:
    failures = [(500, {}), (429, {})]
    with fake_service(lambda n, body: failures[n] if n < 2 else lengths(n, body)) as (service, _):
        assert embed(Signals(embedder=service), ["ab"]).tolist() == [[2, 1]]


def test_a_redirection_is_not_followed_because_the_key_would_be_sent_too() -> None:
    with (
        fake_service(lengths) as (service, requests),
        redirecting(service.url.removesuffix("/v1")) as url,
        pytest.raises(InferenceError, match="HTTP 307"),
    ):
        embedding_of_a(service.model_copy(update={"url": f"{url}/v1"}))
    assert requests == []


def test_embeddings_of_different_lengths_are_an_error() -> None:
    def growing(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        return 200, {"data": [{"index": i, "embedding": [1.0] * (before + 1)} for i in range(len(body["input"]))]}

    with fake_service(growing) as (service, _), pytest.raises(InferenceError, match=r"\[1, 2\]"):
        embed(Signals(embedder=service), ["a"] * 129)  # two requests


def chat_reply(text: object) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


GOOD = json.dumps({"1": {"cluster_id": 1}, "2": {"cluster_id": 100}})


def test_a_judge_with_unusable_replies_is_asked_again_and_then_given_up() -> None:
    def reply(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        if "hopeless" in body["messages"][0]["content"]:
            return 200, chat_reply("I would rather not.")
        return 200, chat_reply(GOOD if body["seed"] == 1 else "{}")

    with fake_service(reply) as (service, requests):
        texts = [("hopeful", ["a", "b"]), ("hopeless", ["a", "b"])]
        assert cluster(Signals(clusterer=service), groups_of(texts), texts) == [(1, 100), None]
    temperatures = sorted((body["seed"], body["temperature"]) for _, body, _ in requests)
    assert temperatures == [(0, 0.0), (0, 0.0), (1, 0.7), (1, 0.7), (2, 0.7)]


def test_without_services_strategies_and_embeddings_are_computed_here() -> None:
    texts = [("q", [r"1 + 1 \boxed{2}", r"\boxed{2}", r"2 + 2 \boxed{4}", "?"])]
    assert cluster(Signals(), groups_of(texts), texts) == [(1, 100, 1, 2)]
    assert cluster(Signals(clusterer="answer"), groups_of(texts), texts) == [(1, 1, 2, 100)]
    assert embed(Signals(), ["a b"]).shape == (1, 1024)


def test_strategies_are_found_for_a_method_without_them_only_if_they_are_measured() -> None:
    def found(signals: Signals) -> tuple[int, ...] | None:
        [group] = with_signals(groups_of(texts), texts, Grpo(), signals)
        return group.clusters

    texts = [("q", [r"1 + 1 \boxed{2}", r"1 - 1 \boxed{0}"])]
    assert found(Signals()) is None
    assert found(Signals(measure_strategies=True)) == (1, 2)
    served, asked = Signals(clusterer="served"), Signals(clusterer="served", measure_strategies=True)
    assert (served.served(Grpo()), asked.served(Grpo())) == ({}, {"judge": "clusterer"})
    with fake_service(lengths) as (service, _):
        assert Signals(clusterer=service).services(Grpo()) == []
        assert Signals(clusterer=service, measure_strategies=True).services(Grpo()) == [service]
