"""A fake judge behind `tests.fake_service`: it answers by the exact oracle's arithmetic, or fails in a chosen way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.seeds import seed_for
from services.oracles import exact
from tests.fake_service import Answer

Say = Callable[[str], str]  # what is said to the user's message


def said(text: object, **choice: Any) -> tuple[int, Any]:
    """A chat completion as OpenAI's API gives it."""
    usage = {"prompt_tokens": 200, "completion_tokens": 10}
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}, **choice}], "usage": usage}


def question_of(body: dict[str, Any]) -> str:
    question: str = body["messages"][1]["content"]
    return question


def judge_that(say: Say) -> Answer:
    return lambda _before, body: said(say(question_of(body)), finish_reason="stop")


def solved(question: str) -> str:
    """What a judge without fault replies."""
    answer = exact.solve(question)
    return f"Step by step.\n\\boxed{{{'ill-posed' if answer is None else answer}}}"


def errs(question: str, rate: float) -> bool:
    """Whether a judge with this error rate gets the question wrong; the same at every time."""
    return seed_for(1, question) % 1000 < 1000 * rate


def erring(rate: float) -> Say:
    """A judge that solves questions, and of this share says a number next to the answer."""

    def say(question: str) -> str:
        answer = exact.solve(question)
        return f"\\boxed{{{(answer or 0) + 3}}}" if errs(question, rate) else solved(question)

    return say


def checked(message: str) -> str:
    """R-Zero's prompt answered by comparing the two numbers that it shows."""
    answer, truth = _pair(message)
    return "Yes" if answer == truth else "No"


def _pair(message: str) -> tuple[str, str]:
    first, second, *_ = message.split("\n")
    return (
        first.removeprefix("Hi, there is an answer: ").removesuffix(","),
        second.removeprefix("and the ground truth answer is: ").removesuffix(","),
    )
