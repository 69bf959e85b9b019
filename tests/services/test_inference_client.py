"""How the client tries again, against a fake service that fails on purpose (the real one: test_app_live.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from core.settings.training import Sampling
from services.inference.client import InferenceClient, InferenceError
from services.inference.engines.base import Prompt
from tests.http_server import Handler, listening, sending_elsewhere

PROMPT = Prompt(({"role": "user", "content": "?"},), 5, 2, Sampling())


@contextmanager
def fake_service(
    *outcomes: int | str, batches: bool = False, before_reply: Callable[[int], None] = lambda _before: None
) -> Iterator[tuple[str, list[int | str]]]:
    """Gives each outcome to one request, the last to all further ones: an HTTP status, or who made the reply. With
    `batches` it takes several chats in a request. `before_reply` is called with how many requests came before.

    Yields the URL and a list of what was given.
    """
    given: list[int | str] = []

    class Answering(Handler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            ours = {"checkpoint": "wanted", "sha256": "0", "batches": True}
            self.answer(200, {"data": [{"id": "solver", **(ours if batches else {})}]})

        def do_POST(self) -> None:
            body = self.json()
            outcome = outcomes[min(len(given), len(outcomes) - 1)]
            given.append(outcome)
            before_reply(len(given) - 1)
            if not isinstance(outcome, str):
                self.answer(outcome, {"detail": "no"})
            elif self.path.endswith("/batch"):
                self.answer(200, {"responses": [_reply(outcome, one["seed"]) for one in body["requests"]]})
            else:
                self.answer(200, _reply(outcome, body["seed"]))

    with listening(Answering) as url:
        yield f"{url}/v1", given


def _reply(maker: str, seed: int) -> dict[str, object]:
    choice = {
        "finish_reason": "stop",
        "logprobs": None,
        "completion_tokens": 3,
        "mean_entropy": 0.25,
        "entropy_error": 0.0,
    }
    choices = [
        {**choice, "index": j, "message": {"role": "assistant", "content": f"answer {seed + j}"}} for j in range(2)
    ]
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
        ("answer 5", 5, 3, 0.25, "wanted"),
        ("answer 6", 6, 3, 0.25, "wanted"),
    ]


def test_a_reply_by_another_checkpoint_is_never_taken() -> None:
    with fake_service("other", "wanted") as (url, given):
        assert InferenceClient(url, "solver").generate([PROMPT], "wanted")[0][0].checkpoint == "wanted"
    assert given == ["other", "wanted"]


def test_what_will_not_pass_fails_at_once_with_what_the_service_said() -> None:
    with fake_service(400) as (url, given), pytest.raises(InferenceError, match=r'HTTP 400: \{"detail": "no"\}'):
        InferenceClient(url, "solver").generate([PROMPT], "wanted")
    assert given == [400]


def test_a_redirection_is_not_followed_since_the_key_would_go_with_it() -> None:
    with (
        fake_service("wanted") as (url, given),
        sending_elsewhere(url.removesuffix("/v1")) as elsewhere,
        pytest.raises(InferenceError, match=r"HTTP 307"),
    ):
        InferenceClient(f"{elsewhere}/v1", "solver").generate([PROMPT], "wanted")
    assert given == []


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


def test_all_batches_together_have_no_more_prompts_under_way_than_the_client_allows() -> None:
    """The first four are held until a fifth comes, or for a second in which none may."""
    lock, now, most, fifth = threading.Lock(), [0], [0], threading.Event()

    def held(before: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        fifth.wait(1) if before < 4 else fifth.set()
        with lock:
            now[0] -= 1

    with fake_service("wanted", before_reply=held) as (url, given):
        client = InferenceClient(url, "solver", concurrency=4)
        assert [len(batch) for batch in client.generate_in_turn([[PROMPT] * 3] * 4, "wanted", 4)] == [3] * 4
    assert (len(given), most) == (12, [4])


def test_where_the_service_takes_several_prompts_in_a_request_it_gets_them() -> None:
    prompts = [replace(PROMPT, seed=10 * i) for i in range(19)]
    with fake_service(503, "wanted", batches=True) as (url, given):
        together = InferenceClient(url, "solver", concurrency=8).generate(prompts, "wanted")  # 8, 8 and 3
    with fake_service("wanted") as (url, singly):
        alone = InferenceClient(url, "solver").generate(prompts, "wanted")
    assert given == [503, "wanted", "wanted", "wanted"]
    assert singly == ["wanted"] * 19
    assert together == alone
    assert [[reply.text for reply in group] for group in together[:2]] == [
        ["answer 0", "answer 1"],
        ["answer 10", "answer 11"],
    ]


def test_a_batch_with_a_reply_by_another_checkpoint_is_asked_for_again() -> None:
    with fake_service("other", "wanted", batches=True) as (url, given):
        replies = InferenceClient(url, "solver").generate([PROMPT] * 3, "wanted")
    assert given == ["other", "wanted"]
    assert {reply.checkpoint for group in replies for reply in group} == {"wanted"}
