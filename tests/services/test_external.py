"""Replies of external services that would exhaust this process, crash it, or put a key into an error message."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import aiohttp
import pytest

from core.grading.grader import Grader
from core.judging.replies import Case, Claimed
from core.settings.audit import Judge
from core.settings.serving import Service
from core.types import Spent
from services.inference import external
from services.inference.client import InferenceError
from services.inference.external import ask_each, post
from services.oracles.judge import audit
from tests.fake_judge import chat_completion, correct_reply, question_of
from tests.fake_service import fake_service
from tests.http_server import Handler, listening

LIMIT, PART = 1 << 22, bytes(1 << 20)


def ask(service: Service) -> Any:
    """The reply of the service to one request."""

    async def one(http: aiohttp.ClientSession, _: int) -> Any:
        return await post(http, service, "chat/completions", {})

    return asyncio.run(ask_each(service, [0], one, at_once=1))[0]


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
    with (
        large_service(compressed=compressed) as service,
        pytest.raises(InferenceError, match=rf"expected a reply of at most {LIMIT:,} bytes, got more"),
    ):
        ask(service)


@pytest.mark.parametrize("reply", [b"[" * 100_000, b"9" * 5_000, b"\xff"])
def test_a_reply_that_python_cannot_hold_is_an_error_of_the_service(reply: bytes) -> None:
    with fake_service(lambda *_: (200, reply)) as (service, _), pytest.raises(InferenceError, match="expected JSON"):
        ask(service)


@pytest.mark.parametrize("status", [401, 422, 500])
def test_a_service_that_repeats_its_key_does_not_put_it_into_the_error(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_JUDGE", "qwertyuiop")  # neither the name nor the value looks like a secret
    with fake_service(lambda *_: (status, {"error": "do not know qwertyuiop"})) as (service, _):
        keyed = service.model_copy(update={"key_variable": "A_JUDGE", "attempts": 1})
        with pytest.raises(InferenceError, match=re.escape(f"HTTP {status}")) as raised:
            ask(keyed)
    assert "do not know [secret]" in str(raised.value)


def test_a_failed_reply_cannot_command_the_terminal() -> None:
    with (
        fake_service(lambda *_: (401, "\x1b]0;title\x07\x9b2J".encode())) as (service, _),
        pytest.raises(InferenceError, match="HTTP 401:  ]0;title  2J"),
    ):
        ask(service)


@pytest.mark.parametrize("tokens", [10**400, -1, 1.5, "many", None])
def test_impossible_numbers_of_tokens_are_not_counted(tokens: object) -> None:
    def answer(_: int, body: dict[str, Any]) -> tuple[int, Any]:
        status, reply = chat_completion(correct_reply(question_of(body)))
        return status, {**reply, "usage": {"prompt_tokens": tokens, "completion_tokens": tokens}}

    case = Case("r/1/000000", "What is 2 + 3?", Claimed("5"))
    with fake_service(answer) as (service, _), Grader() as grader:
        result = audit([case], Judge(url=service.url, model="m"), grader, seed=1)
    assert [label.verdict for label in result.labels] == ["right"]
    assert result.spent == Spent(1 + result.sentinels.n)
