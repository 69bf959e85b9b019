"""A fake judge behind `tests.fake_service`: it answers by the exact oracle's arithmetic, or fails in a chosen way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core import worlds
from core.seeds import seed_for
from tests.fake_service import Answer

Reply = Callable[[str], str]  # from the user's message to the text of the judge's reply


def chat_completion(text: object, **choice: Any) -> tuple[int, Any]:
    """A chat completion as OpenAI's API gives it."""
    usage = {"prompt_tokens": 200, "completion_tokens": 10}
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}, **choice}], "usage": usage}


def question_of(body: dict[str, Any]) -> str:
    question: str = body["messages"][1]["content"]
    return question


def judge_with(reply: Reply) -> Answer:
    return lambda _before, body: chat_completion(reply(question_of(body)), finish_reason="stop")


def correct_reply(question: str) -> str:
    """The reply of a judge that makes no mistakes."""
    answer = worlds.solve(question)
    return f"Step by step.\n\\boxed{{{'ill-posed' if answer is None else answer}}}"


def is_wrong_about(question: str, rate: float) -> bool:
    """Whether a judge with this error rate gets the question wrong; always the same for the same question."""
    return seed_for(1, question) % 1000 < 1000 * rate


def reply_with_errors(rate: float) -> Reply:
    """The replies of a judge that solves questions, but for this share of them replies with a number 3 too high."""

    def reply(question: str) -> str:
        answer = worlds.solve(question)
        return f"\\boxed{{{(answer or 0) + 3}}}" if is_wrong_about(question, rate) else correct_reply(question)

    return reply


def comparing_reply(message: str) -> str:
    """The reply to R-Zero's prompt, made by comparing the two numbers that it shows."""
    answer, truth = pair_of(message)
    return "Yes" if answer == truth else "No"


def pair_of(message: str) -> tuple[str, str]:
    """The answer and the true answer that R-Zero's prompt shows."""
    first, second, *_ = message.split("\n")
    return (
        first.removeprefix("Hi, there is an answer: ").removesuffix(","),
        second.removeprefix("and the ground truth answer is: ").removesuffix(","),
    )
