"""`python -m benchmarks swap`: which requests count as lost."""

from __future__ import annotations

import httpx

from benchmarks.swap import _PROMPTS, _send

_EXPECTED = {"a": ["old"] * len(_PROMPTS), "b": ["new"] * len(_PROMPTS)}


def _ask_once(response: httpx.Response | httpx.TransportError) -> tuple[str, str | None]:
    def reply(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/solver/v1/chat/completions"
        if isinstance(response, httpx.TransportError):
            raise response
        return response

    with httpx.Client(transport=httpx.MockTransport(reply)) as http:
        return _send(http, "http://here/solver/v1", 0, _EXPECTED)


def _chat(maker: str, text: str) -> httpx.Response:
    return httpx.Response(200, json={"policy_version": maker, "choices": [{"message": {"content": text}}]})


def test_a_request_is_answered_by_either_checkpoint_with_its_own_text() -> None:
    assert _ask_once(_chat("a", "old")) == ("a", None)
    assert _ask_once(_chat("b", "new")) == ("b", None)


def test_a_request_is_lost_with_another_s_text_an_error_or_no_answer() -> None:
    assert _ask_once(_chat("b", "old")) == ("b", "b: expected 'new', got 'old'")
    assert _ask_once(httpx.Response(503, text="busy"))[1] == "HTTP 503: busy"
    assert _ask_once(httpx.ReadTimeout("late"))[1] == "ReadTimeout('late')"
