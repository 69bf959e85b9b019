"""The client's retries, with a fake service that fails on purpose; test_app_live.py uses the real one."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.settings.training import Sampling
from services.inference.client import InferenceClient, InferenceError, Reply
from services.inference.engines.base import Completion, Prompt, VocabularyDropout
from services.inference.openai_api import ChatRequest, chat_response
from tests.fake_applications import fake_applications
from tests.http_server import Handler, listening, redirecting

PROMPT = Prompt(({"role": "user", "content": "?"},), 5, 2, Sampling())


@contextmanager
def fake_service(
    *outcomes: int | str, batches: bool = False, before_reply: Callable[[int], object] = lambda _before: None
) -> Iterator[tuple[str, list[int | str]]]:
    """Each outcome is for one request, the last one for all further requests: an HTTP status, or the checkpoint that
    the reply names. With `batches` the service accepts several chats in a request. `before_reply` is called with the
    number of earlier requests.

    Yields the URL and the list of outcomes so far.
    """
    given_outcomes: list[int | str] = []

    class Answering(Handler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            batch_support = {"checkpoint": "wanted", "sha256": "0", "batches": True}
            self.answer(200, {"data": [{"id": "solver", **(batch_support if batches else {})}]})

        def do_POST(self) -> None:
            body = self.json()
            outcome = outcomes[min(len(given_outcomes), len(outcomes) - 1)]
            given_outcomes.append(outcome)
            before_reply(len(given_outcomes) - 1)
            if not isinstance(outcome, str):
                self.answer(outcome, {"detail": "no"})
            elif self.path.endswith("/batch"):
                self.answer(200, {"responses": [_reply(outcome, chat["seed"]) for chat in body["requests"]]})
            else:
                self.answer(200, _reply(outcome, body["seed"]))

    with listening(Answering) as url:
        yield f"{url}/v1", given_outcomes


def _reply(checkpoint: str, seed: int) -> dict[str, Any]:
    completions = [Completion(f"answer {seed + j}", (1, 2, 3), (0.0,) * 3, "stop", 0.25) for j in range(2)]
    return chat_response("solver", checkpoint, completions, logprobs=False).model_dump()


def generate(url: str, prompts: int = 1, **options: Any) -> list[list[Reply]]:
    return InferenceClient(url, "solver", **options).generate([PROMPT] * prompts, "wanted")


@pytest.mark.parametrize("dropout", [None, VocabularyDropout(retention=0.8, seed=2**63 - 1)])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5, top_p=0.9, top_k=40, max_tokens=7)])
def test_a_request_says_how_to_sample(sampling: Sampling, dropout: VocabularyDropout | None) -> None:
    prompt = replace(PROMPT, sampling=sampling, dropout=dropout)
    with fake_applications({"?": ["a", "b"]}) as (services, requests):
        InferenceClient(services.endpoint("solver"), "solver").generate([prompt], "wanted")
    assert ChatRequest.model_validate(requests[0]).prompt() == prompt
    assert ("vocabulary_dropout" in requests[0]) == (dropout is not None)  # vLLM's would be refused


def test_a_request_that_failed_temporarily_is_sent_again_and_its_reply_taken_once() -> None:
    with fake_service(500, 503, 409, "wanted") as (url, given_outcomes):
        replies = generate(url)
    assert given_outcomes == [500, 503, 409, "wanted"]
    assert [(r.text, r.seed, r.tokens, r.mean_entropy, r.checkpoint) for r in replies[0]] == [
        ("answer 5", 5, 3, 0.25, "wanted"),
        ("answer 6", 6, 3, 0.25, "wanted"),
    ]


@pytest.mark.parametrize("batches", [False, True])
def test_a_reply_by_another_checkpoint_is_never_taken(batches: bool) -> None:
    with fake_service("other", "wanted", batches=batches) as (url, given_outcomes):
        replies = generate(url, prompts=3 if batches else 1)
    assert given_outcomes == ["other", "wanted"]
    assert {reply.checkpoint for group in replies for reply in group} == {"wanted"}


@pytest.mark.parametrize(
    ("status", "batches", "words"),
    [
        (400, False, r'HTTP 400: \{"detail": "no"\}'),
        (200, False, r"http\S+: HTTP 200 .*not a completion"),
        (200, True, r"http\S+: HTTP 200 .*not a completion"),
    ],
)
def test_a_permanent_error_fails_at_once_with_what_the_service_said(status: int, batches: bool, words: str) -> None:
    service = fake_service(status, batches=batches)
    with service as (url, given_outcomes), pytest.raises(InferenceError, match=words):
        generate(url, prompts=2 if batches else 1)
    assert given_outcomes == [status]


def test_a_redirection_is_not_followed_because_the_key_would_be_sent_too() -> None:
    with (
        fake_service("wanted") as (url, given_outcomes),
        redirecting(url.removesuffix("/v1")) as elsewhere,
        pytest.raises(InferenceError, match="HTTP 307"),
    ):
        generate(f"{elsewhere}/v1")
    assert given_outcomes == []


def test_patience_limits_the_pauses_and_not_the_sampling() -> None:
    """A request that is lost after minutes of sampling is sent again, even if the patience is shorter."""
    with fake_service(500, "wanted") as (url, given_outcomes):
        generate(url, patience_s=0.06)  # one pause of 0.05 s
    assert len(given_outcomes) == 2
    with fake_service(500) as (url, given_outcomes), pytest.raises(InferenceError, match=r"0\.06 s.*HTTP 500"):
        generate(url, patience_s=0.06)
    assert len(given_outcomes) == 2


def test_a_replica_that_hangs_is_given_up_at_the_deadline() -> None:
    test_is_over = threading.Event()
    with fake_service("wanted", before_reply=lambda _before: test_is_over.wait(60)) as (url, given_outcomes):
        try:
            with pytest.raises(InferenceError, match=r"0\.2 s.*TimeoutError"):
                generate(url, deadline_s=0.2)
        finally:
            test_is_over.set()
    assert len(given_outcomes) == 1


def test_the_error_for_an_unreachable_service_names_the_connection() -> None:
    with pytest.raises(InferenceError, match="ClientConnectorError"):
        generate("http://127.0.0.1:1/v1", patience_s=0.01)


def test_batches_are_sent_ahead_come_in_order_and_end_with_the_first_failure() -> None:
    with fake_service("wanted") as (url, given_outcomes):
        client = InferenceClient(url, "solver")
        batches = client.generate_in_turn([[PROMPT] * k for k in (3, 1, 2)], "wanted", 2)
        assert [len(batch) for batch in batches] == [3, 1, 2]
        assert len(given_outcomes) == 6
        taken = client.generate_in_turn(([PROMPT] for _ in range(100)), "wanted", 2)
        next(taken)
        taken.close()
        assert len(given_outcomes) <= 6 + 2  # only those that were already sent
    with (
        fake_service("wanted", 400) as (url, _),
        closing(InferenceClient(url, "solver").generate_in_turn(([PROMPT] for _ in range(9)), "wanted", 1)) as replies,
    ):
        assert next(replies)
        with pytest.raises(InferenceError, match="HTTP 400"):
            next(replies)


def test_no_thread_is_left_if_no_session_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_url: str, _headers: dict[str, str]) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr("services.inference.client.open_session", fail)
    threads = {*threading.enumerate()}
    with pytest.raises(OSError, match="too many open files"):
        next(InferenceClient("http://127.0.0.1:1/v1", "solver").generate_in_turn([[PROMPT]], "wanted", 1))
    assert {*threading.enumerate()} <= threads


def test_all_batches_together_have_at_most_concurrency_prompts_under_way() -> None:
    """The first four requests wait until a fifth comes, or for a second, in which no fifth may come."""
    lock, under_way, most, fifth = threading.Lock(), [0], [0], threading.Event()

    def wait_for_a_fifth(before: int) -> None:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        fifth.wait(1) if before < 4 else fifth.set()
        with lock:
            under_way[0] -= 1

    with fake_service("wanted", before_reply=wait_for_a_fifth) as (url, given_outcomes):
        client = InferenceClient(url, "solver", concurrency=4)
        assert [len(batch) for batch in client.generate_in_turn([[PROMPT] * 3] * 4, "wanted", 4)] == [3] * 4
    assert (len(given_outcomes), most) == (12, [4])


def test_a_service_that_accepts_several_prompts_in_a_request_gets_them() -> None:
    prompts = [replace(PROMPT, seed=10 * i) for i in range(19)]
    with fake_service(503, "wanted", batches=True) as (url, given_outcomes):
        together = InferenceClient(url, "solver", concurrency=8).generate(prompts, "wanted")  # 8, 8 and 3
    with fake_service("wanted") as (url, given_alone):
        alone = InferenceClient(url, "solver").generate(prompts, "wanted")
    assert given_outcomes == [503, "wanted", "wanted", "wanted"]
    assert given_alone == ["wanted"] * 19
    assert together == alone
    assert [reply.text for group in together[:2] for reply in group] == [f"answer {i}" for i in (0, 1, 10, 11)]


def test_tokens_and_log_probabilities_come_exactly_and_only_if_asked_for() -> None:
    logprobs = (-0.1, math.log(1e-300), float(np.float32(-1 / 3)))

    class Answering(Handler):
        def do_GET(self) -> None:
            self.answer(200, {"data": []})

        def do_POST(self) -> None:
            body = ChatRequest.model_validate(self.json())
            completions = [Completion("a", (7, 0, 151_643), logprobs, "stop", 0.25)] * 2
            reply = chat_response("solver", "wanted", completions, logprobs=False, token_logprobs=body.token_logprobs)
            self.answer(200, reply.model_dump_json().encode())

    with listening(Answering) as url:
        [[asked, _]] = generate(f"{url}/v1", token_logprobs=True)
        [[plain, _]] = generate(f"{url}/v1")
    assert (asked.token_ids, asked.logprobs) == ((7, 0, 151_643), logprobs)
    assert (plain.token_ids, plain.logprobs) == (None, None)
    assert replace(asked, token_ids=None, logprobs=None) == plain


def test_a_service_that_leaves_out_tokens_is_refused() -> None:
    with fake_service("wanted") as (url, given_outcomes):
        with pytest.raises(InferenceError, match="token_logprobs: expected 3 token_ids"):
            generate(url, token_logprobs=True)
        assert given_outcomes == ["wanted"]
