"""How the client tries again, against a fake service that fails on purpose (the real one: test_app_live.py)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from core.config import Sampling
from services.inference.client import InferenceClient, InferenceError
from services.inference.engine import Prompt

PROMPT = Prompt(({"role": "user", "content": "?"},), 5, 2, Sampling())


@contextmanager
def fake_service(*outcomes: int | str) -> Iterator[tuple[str, list[int | str]]]:
    """Gives each outcome to one request, the last to all further ones: an HTTP status, or who made the reply.

    Yields the URL and a list of what was given.
    """
    given: list[int | str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            outcome = outcomes[min(len(given), len(outcomes) - 1)]
            given.append(outcome)
            body = json.dumps(_reply(outcome) if isinstance(outcome, str) else {"detail": "no"}).encode()
            self.send_response(200 if isinstance(outcome, str) else outcome)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", given
    finally:
        server.shutdown()
        server.server_close()


def _reply(maker: str) -> dict[str, object]:
    choice = {
        "finish_reason": "stop",
        "logprobs": None,
        "completion_tokens": 3,
        "mean_entropy": 0.25,
        "entropy_error": 0.0,
    }
    choices = [{**choice, "index": j, "message": {"role": "assistant", "content": f"answer {j}"}} for j in range(2)]
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "solver",
        "policy_version": maker,
        "choices": choices,
        "usage": USAGE,
    }


USAGE = {"prompt_tokens": 1, "completion_tokens": 6, "total_tokens": 7}


def test_what_may_pass_is_tried_again_and_taken_once() -> None:
    with fake_service(500, 503, 409, "wanted") as (url, given):
        replies = InferenceClient(url, "solver").generate([PROMPT], "wanted")
    assert given == [500, 503, 409, "wanted"]
    assert [(r.text, r.seed, r.tokens, r.mean_entropy, r.checkpoint) for r in replies[0]] == [
        ("answer 0", 5, 3, 0.25, "wanted"),
        ("answer 1", 6, 3, 0.25, "wanted"),
    ]


def test_a_reply_by_another_checkpoint_is_never_taken() -> None:
    with fake_service("other", "wanted") as (url, given):
        assert InferenceClient(url, "solver").generate([PROMPT], "wanted")[0][0].checkpoint == "wanted"
    assert given == ["other", "wanted"]


def test_what_will_not_pass_fails_at_once_with_what_the_service_said() -> None:
    with fake_service(400) as (url, given), pytest.raises(InferenceError, match=r'HTTP 400: \{"detail": "no"\}'):
        InferenceClient(url, "solver").generate([PROMPT], "wanted")
    assert given == [400]


def test_patience_is_for_the_pauses_and_not_for_the_sampling() -> None:
    """A request that was lost after minutes of sampling is tried again, however short the patience between is."""
    with fake_service(500, "wanted") as (url, given):
        InferenceClient(url, "solver", patience_s=0.06).generate([PROMPT], "wanted")  # one pause of 0.05 s
    assert len(given) == 2
    with fake_service(500) as (url, given), pytest.raises(InferenceError, match=r"waiting 0\.06 s, last: HTTP 500"):
        InferenceClient(url, "solver", patience_s=0.06).generate([PROMPT], "wanted")
    assert len(given) == 2


def test_nobody_there_is_said() -> None:
    with pytest.raises(InferenceError, match="ClientConnectorError"):
        InferenceClient("http://127.0.0.1:1/v1", "solver", patience_s=0.01).generate([PROMPT], "wanted")


def test_batches_come_in_order_with_some_under_way_and_end_with_the_first_failure() -> None:
    with fake_service("wanted") as (url, given):
        client = InferenceClient(url, "solver")
        assert [len(batch) for batch in client.generate_in_turn([[PROMPT] * k for k in (3, 1, 2)], "wanted", 2)] == [
            3,
            1,
            2,
        ]
        assert len(given) == 6
        taken = client.generate_in_turn(([PROMPT] for _ in range(100)), "wanted", 2)
        next(taken)
        taken.close()
        assert len(given) <= 6 + 2  # no more than were under way
    with (
        fake_service("wanted", 400) as (url, _),
        closing(InferenceClient(url, "solver").generate_in_turn(([PROMPT] for _ in range(9)), "wanted", 1)) as replies,
    ):
        assert next(replies)
        with pytest.raises(InferenceError, match="HTTP 400"):
            next(replies)
