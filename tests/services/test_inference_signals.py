"""Embeddings and strategies from services, tested with a fake service that fails or replies nonsense on purpose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

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


def test_embeddings_are_asked_for_in_parts_and_come_in_the_order_of_the_texts() -> None:
    texts = ["x" * i for i in range(300)]
    with fake_service(lengths) as (service, requests):
        rows = embed(Signals(embedder=service), texts)
    assert rows.tolist() == [[i, 1] for i in range(300)]
    assert sorted(len(body["input"]) for _, body, _ in requests) == [44, 128, 128]
    assert {(path, body["model"]) for path, body, _ in requests} == {("/v1/embeddings", "m")}


def test_an_embedder_that_fails_raises_an_error() -> None:
    with fake_service(lambda *_: (503, {})) as (service, requests):
        with pytest.raises(InferenceError, match=r"embeddings: HTTP 503"):
            embed(Signals(embedder=service), ["a"])
        assert len(requests) == 3
    with fake_service(lambda *_: (400, {"error": "too long"})) as (service, requests):
        with pytest.raises(InferenceError, match="too long"):
            embed(Signals(embedder=service), ["a"])
        assert len(requests) == 1  # the error is permanent, so the request is not sent again


def test_a_request_that_failed_temporarily_is_sent_again() -> None:
    with fake_service(lambda before, body: (500, {}) if before < 2 else lengths(before, body)) as (service, _):
        assert embed(Signals(embedder=service), ["ab"]).tolist() == [[2, 1]]


@pytest.mark.parametrize(
    "reply",
    [
        {"data": []},
        {"data": [{"index": 0, "embedding": "none"}]},
        {"data": [{"index": 0, "embedding": [1e999]}]},
        {"data": [{"index": 1e999, "embedding": [1]}]},
        {"data": [{"index": 0, "embedding": [10**400]}]},
        {"rows": 1},
        [],
        b"not json",
    ],
)
def test_a_reply_that_is_no_embedding_is_an_error(reply: Any) -> None:
    with (
        fake_service(lambda *_: (200, reply)) as (service, _),
        pytest.raises(InferenceError, match=r"embeddings: expected"),
    ):
        embed(Signals(embedder=service), ["a"])


def test_embeddings_of_different_lengths_are_an_error() -> None:
    def growing(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        return 200, {"data": [{"index": i, "embedding": [1.0] * (before + 1)} for i in range(len(body["input"]))]}

    with (
        fake_service(growing) as (service, _),
        pytest.raises(InferenceError, match=r"embeddings: expected rows of one length, got \[1, 2\]"),
    ):
        embed(Signals(embedder=service), ["a"] * 129)  # two requests


def chat_reply(text: object) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


TEXTS = [("q", ["a"])]
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


def test_a_judge_that_fails_raises_an_error() -> None:
    with (
        fake_service(lambda *_: (503, {})) as (service, _),
        pytest.raises(InferenceError, match="chat/completions: HTTP 503"),
    ):
        cluster(Signals(clusterer=service), groups_of(TEXTS), TEXTS)
    with (
        fake_service(lambda *_: (200, {"choices": []})) as (service, _),
        pytest.raises(InferenceError, match="expected a chat completion"),
    ):
        cluster(Signals(clusterer=service), groups_of(TEXTS), TEXTS)


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_service(lengths) as (service, requests):
        keyed = service.model_copy(update={"key_variable": "JUDGE_KEY"})
        with pytest.raises(InferenceError, match="JUDGE_KEY is not set in the environment"):
            embed(Signals(embedder=keyed), ["a"])
        monkeypatch.setenv("JUDGE_KEY", "secret")
        embed(Signals(embedder=keyed), ["a"])
    assert [key for _, _, key in requests] == ["Bearer secret"]


def test_a_redirection_is_not_followed_because_the_key_would_be_sent_too() -> None:
    with (
        fake_service(lengths) as (service, requests),
        redirecting(service.url.removesuffix("/v1")) as url,
        pytest.raises(InferenceError, match=r"embeddings: HTTP 307"),
    ):
        embed(Signals(embedder=service.model_copy(update={"url": f"{url}/v1"})), ["a"])
    assert requests == []


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
