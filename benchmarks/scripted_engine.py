"""An engine that answers at once, and the same to the same seed: `python -m benchmarks.scripted_engine PAUSE_S`.

It speaks the part of OpenAI's API that the loop asks, one chat a request, as vLLM does. A Challenger is answered with a
sum, a Solver with one of three answers after some text. It prints its port, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

_TOKENS = 80
_STEPS = "We take it step by step, as we were told, and write down whatever comes to mind on the way. " * 3


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": request.match_info["role"]}]})


async def _chat(request: web.Request) -> web.Response:
    asked = await request.json()
    await asyncio.sleep(request.app[_PAUSE])
    text = _question if asked["model"] == "challenger" else _answer
    choices = [_choice(i, text(asked["seed"] + i)) for i in range(asked["n"])]
    usage = {"completion_tokens": _TOKENS * len(choices)}
    return web.json_response(
        {"model": asked["model"], "policy_version": asked["policy_version"], "choices": choices, "usage": usage}
    )


def _choice(index: int, text: str) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "completion_tokens": _TOKENS,
        "mean_entropy": 0.25,
        "entropy_error": 0.0,
    }


def _question(seed: int) -> str:
    a, b, c = seed % 997, seed // 997 % 991, seed // 988_027 % 983
    return f"<question>A box holds {a} red, {b} blue and {c} green stones. How many are there?</question>\\boxed{{?}}"


def _answer(seed: int) -> str:
    return f"{_STEPS}So it is \\boxed{{{(seed * 2_654_435_761 >> 7) % 3}}}"


_PAUSE = web.AppKey("pause", float)


async def _serve(pause_s: float) -> None:
    app = web.Application()
    app[_PAUSE] = pause_s
    app.add_routes([web.get("/{role}/v1/models", _models), web.post("/{role}/v1/chat/completions", _chat)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
