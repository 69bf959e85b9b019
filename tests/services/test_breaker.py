"""Services that are down, slow, busy or talk rubbish, and come back: which requests reach them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from core.asking.service import Service
from core.settings.serving import Signals
from services.inference.breaker import COOL_DOWN_S, FAILURES_IN_A_ROW, Breaker, ServiceDown
from services.inference.client import InferenceError
from services.inference.external import ask_each, post
from services.inference.signals import embed
from tests.fake_clock import FakeClock, fake_clock
from tests.fake_service import fake_service
from tests.http_server import Handler, listening


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return fake_clock(monkeypatch)


def ask(service: Service, questions: int = 1) -> list[Any]:
    """The service's replies to so many questions, which are asked at the same time."""

    async def one(http: aiohttp.ClientSession, number: int) -> Any:
        return await post(http, service, "chat/completions", {"number": number})

    return asyncio.run(ask_each(service, range(questions), one, at_once=questions))


@contextmanager
def patient_service() -> Iterator[tuple[Service, list[Any], threading.Event]]:
    """A service that answers 503 until the event is set, and of which one request that fails in all its attempts is
    enough to count as down."""
    works = threading.Event()

    def answer(_before: int, body: dict[str, Any]) -> tuple[int, Any]:
        return (200, body["number"]) if works.is_set() else (503, {"error": "loading"})

    with fake_service(answer) as (service, requests):
        yield service.model_copy(update={"attempts": FAILURES_IN_A_ROW}), requests, works


def test_a_service_that_is_down_is_left_alone_until_a_probe_finds_it_working(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "services.inference.breaker")
    with patient_service() as (service, requests, works):
        with pytest.raises(InferenceError, match="HTTP 503"):
            ask(service)
        assert len(requests) == FAILURES_IN_A_ROW
        for _ in range(3):
            with pytest.raises(ServiceDown, match=r"last 5 requests.* in 300 s; .*HTTP 503"):
                ask(service, questions=4)
        assert len(requests) == FAILURES_IN_A_ROW

        clock.seconds += COOL_DOWN_S
        with pytest.raises(InferenceError, match="HTTP 503"):
            ask(service, questions=4)
        assert len(requests) == FAILURES_IN_A_ROW + 1  # the probe, which is not repeated
        clock.seconds += COOL_DOWN_S - 1
        with pytest.raises(ServiceDown, match="asked again in 1 s"):
            ask(service, questions=4)

        clock.seconds += 1
        works.set()
        assert ask(service, questions=4) == [0, 1, 2, 3]
        assert len(requests) == FAILURES_IN_A_ROW + 1 + 4
        assert ask(service) == [0]
    levels = [record.levelno for record in caplog.records if service.url in record.message]
    assert levels == [logging.WARNING, logging.INFO]  # it is down, and it answers again


def test_a_service_that_refuses_connections_is_left_alone(clock: FakeClock) -> None:
    service = Service(url="http://127.0.0.1:1/v1", model="nobody")
    with pytest.raises(InferenceError, match="ClientConnectorError"):
        ask(service)
    assert len(clock.pauses) == service.attempts - 1
    with pytest.raises(ServiceDown):
        ask(service)


@contextmanager
def slow_service(**settings: Any) -> Iterator[tuple[Service, list[str]]]:
    """A service that accepts requests and does not answer them; yields the paths of those that arrived."""
    requests, test_is_over = list[str](), threading.Event()

    class Slow(Handler):
        def do_POST(self) -> None:
            requests.append(self.path)
            test_is_over.wait(60)

    with listening(Slow) as url:
        try:
            yield Service(url=f"{url}/v1", model="m").model_copy(update=settings), requests
        finally:
            test_is_over.set()


def test_questions_to_a_slow_service_do_not_all_wait_for_its_timeout(clock: FakeClock) -> None:
    with slow_service(timeout=0.2, attempts=FAILURES_IN_A_ROW) as (service, requests):
        with pytest.raises(InferenceError, match="TimeoutError"):
            ask(service)
        assert len(requests) == FAILURES_IN_A_ROW
        with pytest.raises(ServiceDown):
            ask(service, questions=50)
    assert len(requests) == FAILURES_IN_A_ROW
    assert clock.seconds < 20


def test_a_request_that_took_its_whole_deadline_is_not_repeated() -> None:
    with (
        slow_service(timeout=0.2, deadline=0.1, attempts=5) as (service, requests),
        pytest.raises(InferenceError, match="TimeoutError"),
    ):
        ask(service)
    assert len(requests) == 1


def test_while_a_probe_is_on_its_way_no_other_request_is_sent(clock: FakeClock) -> None:
    breaker = Breaker("a service")
    for _ in range(FAILURES_IN_A_ROW):
        breaker.failed("no answer")
    breaker.gave_up()
    clock.sleep(COOL_DOWN_S)
    assert breaker.admit()
    with pytest.raises(ServiceDown):
        breaker.admit()
    clock.sleep(COOL_DOWN_S)  # the probe was lost
    assert breaker.admit()


def test_a_service_that_limits_the_rate_is_not_down(clock: FakeClock) -> None:
    """It says when it wants to be asked again, which is honoured within the deadline."""

    class Limited(Handler):
        def do_POST(self) -> None:
            arrivals.append(clock.seconds)
            self.send_response(429)
            self.send_header("Retry-After", "20")
            self.send_header("Content-Length", "0")
            self.end_headers()

    arrivals: list[float] = []
    with listening(Limited) as url:
        limits = {"attempts": 100, "deadline": 150, "timeout": 10}
        service = Service(url=f"{url}/v1", model="m").model_copy(update=limits)
        for _ in range(2):
            with pytest.raises(InferenceError, match="HTTP 429"):
                ask(service)
    assert len(arrivals) == 2 * 7  # 6 pauses of 20 s and at most 12.6 s more; the next would end after 151 s or later
    pauses = [later - earlier for earlier, later in pairwise(arrivals[:7])]
    assert all(20 < pause <= 30 for pause in pauses)
    assert arrivals[6] <= 150


def test_an_answer_between_failures_shows_that_the_service_works(clock: FakeClock) -> None:
    def every_third_works(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        return (200, body["number"]) if before % 3 == 2 else (500, {})

    with fake_service(every_third_works) as (service, requests):
        impatient = service.model_copy(update={"attempts": 1})
        for attempt in range(12):
            if attempt % 3 == 2:
                assert ask(impatient) == [0]
            else:
                with pytest.raises(InferenceError, match="HTTP 500"):
                    ask(impatient)
    assert len(requests) == 12


def test_an_embedder_that_is_down_fails_a_reward_without_another_wait(clock: FakeClock) -> None:
    """No reward can be computed without it, so the error is not caught: the stage fails, and can be resumed."""
    with patient_service() as (service, requests, _):
        for error in (InferenceError, ServiceDown):
            with pytest.raises(error, match=service.url):
                embed(Signals(embedder=service), ["a text"])
        assert len(requests) == FAILURES_IN_A_ROW
        clock.seconds += COOL_DOWN_S
        with pytest.raises(InferenceError, match=service.url):
            embed(Signals(embedder=service), ["a text"])
    assert len(requests) == FAILURES_IN_A_ROW + 1


@pytest.mark.parametrize("reply", [(200, b"<html>"), (404, {}), (501, {})])
def test_an_answer_that_would_be_the_same_again_is_asked_for_once(reply: tuple[int, Any], clock: FakeClock) -> None:
    with fake_service(lambda *_: reply) as (service, requests), pytest.raises(InferenceError):
        ask(service)
    assert len(requests) == 1
    assert clock.pauses == []


def test_each_model_of_a_gateway_has_a_breaker_of_its_own(clock: FakeClock) -> None:
    with patient_service() as (service, _, works):
        with pytest.raises(InferenceError):
            ask(service)
        works.set()
        assert ask(service.model_copy(update={"model": "other"})) == [0]
        with pytest.raises(ServiceDown):
            ask(service)
