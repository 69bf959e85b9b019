"""`python -m tests.chaos.scripted_applications`: fake inference applications whose texts depend on nothing but
the request. It prints their address and answers until its input ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.fake_applications import answering

_SUM = re.compile(r"What is (\d+) \+ (\d+)\?")


def texts_of(body: dict[str, Any]) -> Sequence[str]:
    """The Challenger asks for sums, at times malformed; the Solver answers them, at times wrong."""
    name = f"{body['policy_version']} {body['seed']} {body['messages'][-1]['content']} {body['temperature']}"
    rng, asked = Random(name), _SUM.search(body["messages"][-1]["content"])
    if asked is None:
        return [_question(rng) for _ in range(body["n"])]
    right = int(asked[1]) + int(asked[2])
    return [f"It is \\boxed{{{right + rng.choice((0, 0, 0, 1))}}}." for _ in range(body["n"])]


def _question(rng: Random) -> str:
    if rng.random() < 0.1:
        return "I cannot think of one."
    return f"<question>What is {rng.randint(0, 99)} + {rng.randint(0, 99)}?</question> \\boxed{{1}}"


if __name__ == "__main__":
    with answering(texts_of, batches=True) as services:
        print(services.serve_url, flush=True)
        sys.stdin.read()
