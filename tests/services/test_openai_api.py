"""The requests that our applications take from clients of OpenAI's API, and those that they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from services.inference.openai_api import ChatBatchRequest, ChatRequest
from services.inference.server.app import api as application

CHAT: dict[str, Any] = {"model": "solver", "messages": [{"role": "user", "content": "1 + 1?"}]}
PLAIN = ChatRequest(**CHAT).prompt()


def server() -> TestClient:
    """A server with the applications' way to refuse a request, and no model."""
    app = FastAPI(exception_handlers=application.exception_handlers)

    @app.post("/one")
    async def one(_: ChatRequest) -> str:
        return "taken"

    @app.post("/batch")
    async def batch(_: ChatBatchRequest) -> str:
        return "taken"

    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    "options",
    [
        dict.fromkeys(("stop", "seed", "n", "max_tokens", "temperature", "top_p", "top_k", "logprobs")),
        dict.fromkeys(("policy_version", "tools", "response_format", "stream", "unheard_of", "max_completion_tokens")),
        {"stream": False, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "tools": [], "min_p": 0},
        {"response_format": {"type": "text"}, "repetition_penalty": 1.0, "user": "ann", "metadata": {"a": "b"}},
        {"top_k": -1, "logit_bias": None},
        {"top_k": 0},
        {"tool_choice": "none", "parallel_tool_calls": True, "service_tier": "auto", "modalities": ["text"]},
        {"best_of": 1, "length_penalty": 1.0, "stop_token_ids": [], "skip_special_tokens": True},
        {"use_beam_search": False, "safety_identifier": "ann", "prompt_cache_key": "k"},
        {"stream_options": {"include_usage": False}, "vocabulary_dropout": None},
    ],
)
def test_options_that_change_no_answer_count_as_left_out(options: dict[str, Any]) -> None:
    assert ChatRequest(**CHAT, **options).prompt() == PLAIN
    assert server().post("/one", json={**CHAT, **options}).status_code == 200


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"stream": True}, "stream"),
        ({"min_p": 0.9}, "min_p"),
        ({"frequency_penalty": 2}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"logit_bias": {"5": 100}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"top_k": -2}, "top_k"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"unheard_of": 0}, "unheard_of"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "content"),
        ({"messages": None}, "messages"),
        *(({"vocabulary_dropout": {"retention": share, "seed": 0}}, "retention") for share in (0, 1.01)),
        ({"vocabulary_dropout": {"retention": 0.8}}, "seed"),
        ({"vocabulary_dropout": {"retention": 0.8, "seed": 0, "kept": [1]}}, "kept"),
        *(({"stop": stop}, "stop") for stop in ("", [""], ["x", ""])),  # an empty text ends no answer
    ],
)
def test_options_that_would_change_the_answers_are_refused_by_name(options: dict[str, Any], name: str) -> None:
    for path, body in (("/one", {**CHAT, **options}), ("/batch", {"requests": [CHAT, {**CHAT, **options}]})):
        response = server().post(path, json=body)
        assert response.status_code == 422
        assert all(name in error["loc"] for error in response.json()["detail"])


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({"max_completion_tokens": 3}, 3),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 3}, 3),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
    ],
)
def test_the_limit_of_tokens_has_two_names(options: dict[str, Any], tokens: int) -> None:
    assert ChatRequest(**CHAT, **options).prompt().sampling.max_tokens == tokens


def test_messages_have_openai_s_newer_forms() -> None:
    parts = [{"type": "text", "text": "1 + "}, {"type": "text", "text": "1?"}]
    messages = [{"role": "developer", "content": "Think."}, {"role": "user", "content": parts}]
    assert ChatRequest(model="solver", messages=messages).prompt().messages == (
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "1 + 1?"},
    )


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [{"role": "user", "content": "half a \ud83d"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "\udc00"}]}]},
        {"model": "\ud83d"},
        {"stop": "\ud83d"},
        {"stop": ["\ud83d"]},
        {"policy_version": "\ud83d"},
        {"\ud83d": 1},
        {"seed": "\ud83d"},
    ],
)
@pytest.mark.parametrize("path", ["/one", "/batch"])
def test_a_lone_surrogate_is_refused(path: str, change: dict[str, Any]) -> None:
    body = {**CHAT, **change}
    content = json.dumps(body if path == "/one" else {"requests": [body]})
    response = server().post(path, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert response.json()["detail"]
