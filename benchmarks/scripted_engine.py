"""A server that answers at once with scripted texts: `python -m benchmarks.scripted_engine PAUSE_S`.

It has the part of OpenAI's API that the loop uses, with one chat per request, as vLLM has it. A Challenger's request
gets a sum, and a Solver's gets one of three answers after some text. The same seed gets the same text. With PAUSE_S, it
waits so many seconds before each answer. It prints its port, and ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web

_TOKENS = 80
_STEPS = "We take it step by step, as we were told, and write down whatever comes to mind on the way. " * 3


_PAUSE = web.AppKey("pause", float)


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": request.match_info["role"]}]})


async def _chat(request: web.Request) -> web.Response:
    body = await request.json()
    await asyncio.sleep(request.app[_PAUSE])
    choices = []
    for index in range(body["n"]):
        seed = body["seed"] + index
        if body["model"] == "challenger":
            a, b, c = seed % 997, seed // 997 % 991, seed // 988_027 % 983
            stones = f"{a} red, {b} blue and {c} green stones"
            text = f"<question>A box holds {stones}. How many are there?</question>\\boxed{{{a + b + c}}}"
        else:
            text = f"{_STEPS}So it is \\boxed{{{(seed * 2_654_435_761 >> 7) % 3}}}"
        message = {"role": "assistant", "content": text}
        of_tokens = {"completion_tokens": _TOKENS, "mean_entropy": 0.25, "entropy_error": 0.0}
        choices.append({"index": index, "message": message, "finish_reason": "stop", **of_tokens})
    usage = {"completion_tokens": _TOKENS * len(choices)}
    return web.json_response(
        {"model": body["model"], "policy_version": body["policy_version"], "choices": choices, "usage": usage}
    )


async def main(pause_s: float) -> None:
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
    asyncio.run(main(float(sys.argv[1])))
