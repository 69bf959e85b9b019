"""Chats with OpenAI-compatible services: how they are sent, how replies are read, and replies that would exhaust this
process, crash it, or put a key into an error message."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import aiohttp
import pytest

from core.asking.service import Service
from services.inference import external
from services.inference.client import InferenceError
from services.inference.external import RequestRefused, ask_each
from services.inference.external_chats import ChatReply, ask_chat
from tests.fake_service import Answer, fake_service
from tests.http_server import Handler, listening

QUESTION = [{"role": "user", "content": "What is the seed of 3 + 4?"}]
BOX = r"\boxed{7}"
LIMIT, PART = 1 << 22, bytes(1 << 20)


def ask(service: Service, **options: Any) -> ChatReply:
    async def once(http: aiohttp.ClientSession, _: int) -> ChatReply:
        return await ask_chat(http, service, QUESTION, 64, **options)

    return asyncio.run(ask_each(service, [0], once, 1))[0]


def chat(content: Any = BOX, usage: Any = None, reason: Any = "stop", **message: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": reason}
    return {"choices": [choice], "usage": usage}


TEXT = {"type": "text", "text": BOX}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (chat(usage={"prompt_tokens": 3, "completion_tokens": 5}), ChatReply(BOX, "stop", False, 3, 5)),
        (chat(usage=None), ChatReply(BOX, "stop", False, 0, 0)),
        ({"choices": [{"message": {"content": BOX}}]}, ChatReply(BOX, "stop", False, 0, 0)),
        (chat(usage={"prompt_tokens": None, "completion_tokens": 5}), ChatReply(BOX, "stop", False, 0, 5)),
        (chat(usage={"completion_tokens": 10**30, "prompt_tokens": -1}), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(usage={"completion_tokens": 10**400, "prompt_tokens": "many"}), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(usage={"completion_tokens": 1.5}), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(usage=[]), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(reason=None), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(reason="length"), ChatReply(BOX, "length", False, 0, 0)),
        (chat(reason="content_filter"), ChatReply(BOX, "stop", True, 0, 0)),
        (chat([TEXT]), ChatReply(BOX, "stop", False, 0, 0)),
        (chat([{"type": "thinking", "thinking": []}, TEXT]), ChatReply(BOX, "stop", False, 0, 0)),
        (chat([{**TEXT, "text": "So "}, {**TEXT, "type": "output_text"}]), ChatReply(f"So {BOX}", "stop", False, 0, 0)),
        (chat([]), ChatReply("", "stop", False, 0, 0)),
        (chat([{"text": BOX}]), ChatReply(BOX, "stop", False, 0, 0)),
        (chat([TEXT, {"type": "refusal", "refusal": "No."}]), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(reason="model_length"), ChatReply(BOX, "length", False, 0, 0)),
        (chat(reason="max_tokens"), ChatReply(BOX, "length", False, 0, 0)),
        (chat(None, reason="tool_calls", tool_calls=[{"id": "1"}]), ChatReply("", "stop", False, 0, 0)),
        (chat(logprobs=None, annotations=[], audio=None), ChatReply(BOX, "stop", False, 0, 0)),
        (b"\xef\xbb\xbf" + json.dumps(chat()).encode(), ChatReply(BOX, "stop", False, 0, 0)),
        (b"\n\n " + json.dumps(chat()).encode(), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(None, reasoning_content=BOX), ChatReply("", "stop", False, 0, 0)),
        (chat(BOX, reasoning_content="3 + 4", reasoning="3"), ChatReply(BOX, "stop", False, 0, 0)),
        (chat(None, refusal="No."), ChatReply("", "stop", False, 0, 0)),
        ({**chat(), "error": None}, ChatReply(BOX, "stop", False, 0, 0)),
        (chat('The "error" is small.'), ChatReply('The "error" is small.', "stop", False, 0, 0)),
    ],
)
def test_legal_replies_are_read(reply: dict[str, Any] | bytes, expected: ChatReply) -> None:
    with fake_service(lambda *_: (200, reply)) as (service, requests):
        assert ask(service) == expected
    assert [path for path, _, _ in requests] == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    "reply",
    [
        {"error": {"code": 429}},
        {"error": {"code": "502", "message": "upstream"}},
        {"error": {"message": "Rate limit exceeded", "type": "rate_limit_error"}},
        {"error": {"type": "overloaded_error"}},
        {"error": "The server is busy, try again later"},
        {"choices": [{"error": {"code": 503, "message": "x"}, "finish_reason": "error", "message": {"content": ""}}]},
        {"error": {"code": 429}, "choices": []},
        {"object": "error", "message": "x", "code": 503},
        {"object": "error", "message": "The server is overloaded."},
        chat("So", reason="error"),
    ],
)
def test_an_error_that_may_pass_is_asked_again_also_with_status_200(reply: dict[str, Any]) -> None:
    with fake_service(lambda before, _: (200, chat() if before else reply)) as (service, requests):
        assert ask(service).text == BOX
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"error": {"code": 400, "message": "too long"}}, RequestRefused),
        ({"error": {"code": 401}}, InferenceError),
        ({"error": {"code": 402, "message": "no credits"}}, InferenceError),
        ({"error": "no such model"}, InferenceError),
        ({"object": "error", "message": "too long", "code": 400}, RequestRefused),
        ({"error": {"code": "model_not_found"}}, InferenceError),
        ([], InferenceError),
        ({}, InferenceError),
        ({"choices": []}, InferenceError),
        ({"choices": None}, InferenceError),
        ({"choices": ["x"]}, InferenceError),
        ({"choices": [{}]}, InferenceError),
        (chat(7), InferenceError),
        (chat(["x"]), InferenceError),
        (b"<html>", InferenceError),
        (b'data: {"choices": [{"delta": {"content": "7"}}]}\n\ndata: [DONE]\n\n', InferenceError),
        # These exhaust Python's recursion, its limit of digits, and UTF-8.
        (b"[" * 100_000, InferenceError),
        (b"9" * 5_000, InferenceError),
        (b"\xff", InferenceError),
    ],
)
def test_any_other_reply_with_status_200_ends_the_request(reply: Any, error: type[InferenceError]) -> None:
    with fake_service(lambda *_: (200, reply)) as (service, requests), pytest.raises(error):
        ask(service)
    assert len(requests) == 1


AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
O1 = "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with another."


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": AZURE, "type": None, "param": "prompt", "code": "content_filter", "status": 400}),
        (400, {"code": "content_filter", "message": "filtered"}),
        (400, {"message": O1, "type": "invalid_request_error", "param": None, "code": "invalid_prompt"}),
        (400, {"code": "content_policy_violation", "message": "no"}),
        (200, {"message": AZURE, "code": 400}),
    ],
)
def test_a_question_that_a_filter_refuses_has_an_empty_reply(status: int, error: dict[str, Any]) -> None:
    """One such question of thousands ended the evaluation."""
    with fake_service(lambda *_: (status, {"error": error})) as (service, requests):
        assert ask(service) == ChatReply("", "stop", True, 0, 0)
    assert len(requests) == 1


def refusing(*names: str, text: str = "Unsupported parameter: '{}' is not supported with this model.") -> Answer:
    """A service that refuses requests with these options, one after the other."""

    def answer(_: int, body: dict[str, Any]) -> tuple[int, Any]:
        wrong = next((name for name in names if name in body), None)
        return (200, chat()) if wrong is None else (400, {"error": {"message": text.format(wrong), "param": wrong}})

    return answer


@pytest.mark.parametrize(
    ("options", "refused", "sent"),
    [
        ({"seed": 3}, ("seed",), {}),
        ({"temperature": 1.0, "top_p": 1.0}, ("temperature", "top_p"), {}),
        ({"temperature": 0.0, "any_temperature": True}, ("temperature",), {}),
        ({"temperature": 0.5, "seed": 3}, ("seed",), {"temperature": 0.5}),
    ],
)
def test_options_that_change_nothing_are_left_out_if_a_service_refuses_them(
    options: dict[str, Any], refused: tuple[str, ...], sent: dict[str, Any]
) -> None:
    with fake_service(refusing(*refused)) as (service, requests):
        assert [ask(service, **options).text for _ in range(2)] == [BOX, BOX]
    *_, body = [body for _, body, _ in requests]
    assert body == {"model": "m", "messages": QUESTION, "max_tokens": 64, **sent}
    assert len(requests) == 2 + len(refused)  # it is learnt once


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": 0.6, "seed": 1}, {"top_p": 0.9}, {"top_k": 5}]
)
def test_an_option_that_would_change_the_answers_is_never_left_out(options: dict[str, Any]) -> None:
    changing = next(name for name in options if name != "seed")
    answer = refusing(changing, text="Unsupported value: '{}' only supports the default.")
    with fake_service(answer) as (service, requests), pytest.raises(RequestRefused, match=changing):
        ask(service, **options)
    assert all(changing in body for _, body, _ in requests)


def test_the_limit_is_named_as_the_service_wants_it() -> None:
    text = "Unsupported parameter: '{}' is not supported with this model. Use 'max_completion_tokens' instead."
    with fake_service(refusing("max_tokens", text=text)) as (service, requests):
        assert [ask(service).text for _ in range(2)] == [BOX, BOX]
    bodies = [body for _, body, _ in requests]
    assert [body.get("max_completion_tokens") for body in bodies] == [None, 64, 64]
    assert [body.get("max_tokens") for body in bodies] == [64, None, None]


@contextmanager
def large_service(*, compressed: bool) -> Iterator[Service]:
    """A service whose reply has no end, or a small one that becomes large when it is decompressed."""

    class Large(Handler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.json()
            self.send_response(200)
            if compressed:
                bomb = gzip.compress(bytes(4 * LIMIT))
                self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(bomb)))
                self.end_headers()
                self.wfile.write(bomb)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(ConnectionError):
                while True:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(PART), PART))

    with listening(Large) as url:
        yield Service(url=f"{url}/v1", model="m").model_copy(update={"attempts": 1})


@pytest.mark.parametrize("compressed", [False, True])
def test_a_reply_that_is_too_large_is_given_up(compressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "LARGEST_REPLY", LIMIT)
    with large_service(compressed=compressed) as service, pytest.raises(InferenceError, match=f"{LIMIT:,}"):
        ask(service)


@pytest.mark.parametrize(
    ("status", "error", "shown"),
    [
        *((status, {"error": "not qwertyuiop"}, f"HTTP {status}: .*not \\[secret\\]") for status in (401, 422, 500)),
        (401, "\x1b]0;title\x07\x9b2J".encode(), "HTTP 401:  ]0;title  2J"),
    ],
)
def test_an_error_has_the_reply_without_its_key_and_without_commands_for_the_terminal(
    status: int, error: Any, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_service(lambda *_: (status, error)) as (service, requests):
        keyed = service.model_copy(update={"key_variable": "A_JUDGE", "attempts": 1})
        monkeypatch.delenv("A_JUDGE", raising=False)
        with pytest.raises(InferenceError, match="A_JUDGE"):
            ask(keyed)
        monkeypatch.setenv("A_JUDGE", "qwertyuiop")  # neither the name nor the value looks like a secret
        with pytest.raises(InferenceError, match=shown):
            ask(keyed)
    assert [key for _, _, key in requests] == ["Bearer qwertyuiop"]
