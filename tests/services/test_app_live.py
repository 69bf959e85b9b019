"""The two real Serve applications: their checkpoints are swapped in place and verified, and a client samples from
them."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference import access, serve
from services.inference.client import InferenceClient, InferenceError
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from storage.errors import CheckpointError
from tests.live import Live, wait_until
from tests.served import PROMPTS, held_checkpoints, replicas


def _client(live: Live) -> InferenceClient:
    return InferenceClient(live.services.endpoint("solver"), "solver")


def test_a_swap_in_place_keeps_the_replicas_and_every_reply_names_its_checkpoint(
    live: Live, base: Checkpoint, other: Checkpoint
) -> None:
    serve_checkpoints(live.services, {"solver": base, "challenger": base})
    before = replicas(live)
    assert len(before) == 2
    first = _client(live).generate(PROMPTS, base.id)
    serve_checkpoints(live.services, {"solver": other})
    second = _client(live).generate(PROMPTS, other.id)
    assert replicas(live).keys() == before.keys()
    assert held_checkpoints(live) == {"solver": other.id, "challenger": base.id}
    assert {reply.checkpoint for group in first for reply in group} == {base.id}
    assert {reply.checkpoint for group in second for reply in group} == {other.id}
    for checkpoint, replies in ((base, first), (other, second)):
        expected = TransformersEngine(Path(checkpoint.path)).generate(PROMPTS)
        assert [[r.text for r in group] for group in replies] == [[c.text for c in group] for group in expected]
        assert [r.mean_entropy for r in replies[0]] == pytest.approx([c.mean_entropy for c in expected[0]])


def test_replicas_log_lines_of_json_that_name_the_checkpoint(
    live: Live, base: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_checkpoints(live.services, {"solver": base})
    _client(live).generate(PROMPTS, base.id)
    [folder] = live.home.ray_temp.glob("session_2*/logs/serve")
    lines = [line for file in folder.glob("replica_solver_*.log") for line in file.read_text().splitlines()]
    events = [json.loads(line) for line in lines]
    sampled = [event for event in events if event["message"].startswith("sampled ")]
    assert base.id in {event["checkpoint"] for event in sampled}
    # What Serve says of its applications equals what it was sent, so it is not sent again.
    monkeypatch.setattr(serve, "put", lambda *_: pytest.fail("nothing has changed"))
    serve_checkpoints(live.services, {"solver": base})


def test_a_killed_replica_loses_no_request_and_is_replaced(live: Live, base: Checkpoint) -> None:
    serve_checkpoints(live.services, {"solver": base})
    expected = _client(live).generate(PROMPTS, base.id)
    pid, victim = next(iter(replicas(live).items()))
    victim.kill()
    assert _client(live).generate(PROMPTS, base.id) == expected
    wait_until(lambda: len(replicas(live).keys() - {pid}) == 2, "Serve to start another replica")


def test_a_replica_killed_in_the_middle_of_a_swap_is_replaced_by_one_with_the_new_checkpoint(
    live: Live, base: Checkpoint, other: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_checkpoints(live.services, {"solver": base})
    pid, victim = next(iter(replicas(live).items()))
    put = serve.put

    def put_and_kill(*arguments: Any) -> None:
        put(*arguments)
        victim.kill()

    monkeypatch.setattr(serve, "put", put_and_kill)
    serve_checkpoints(live.services, {"solver": other})
    replies = _client(live).generate(PROMPTS, other.id)
    assert {reply.checkpoint for group in replies for reply in group} == {other.id}
    wait_until(lambda: len(replicas(live).keys() - {pid}) == 2, "Serve to start another replica")


def test_a_swap_loses_no_request_that_names_no_checkpoint(live: Live, base: Checkpoint, other: Checkpoint) -> None:
    serve_checkpoints(live.services, {"solver": base})
    url = f"{live.services.endpoint('solver')}/chat/completions"
    body = {
        "model": "solver",
        "messages": RZERO_SOLVER.messages("What is 3 + 4?"),
        "temperature": 0,
        "max_tokens": 60,
    }
    swaps_done = threading.Event()

    def ask() -> set[tuple[int, str]]:
        replies = set()
        with httpx.Client(headers=access.headers(), timeout=120, trust_env=False) as http:
            while not swaps_done.is_set():
                response = http.post(url, json=body)
                replies.add((response.status_code, response.json().get("policy_version")))
        return replies

    with ThreadPoolExecutor(8) as callers:
        results = [callers.submit(ask) for _ in range(8)]
        try:
            for checkpoint in (other, base, other, base, other, base):
                serve_checkpoints(live.services, {"solver": checkpoint})
        finally:
            swaps_done.set()
    assert set.union(*(result.result() for result in results)) <= {(200, base.id), (200, other.id)}


def test_another_checkpoint_than_the_one_held_is_refused(live: Live, base: Checkpoint) -> None:
    serve_checkpoints(live.services, {"solver": base})
    impatient = replace(_client(live), patience_s=1)
    with pytest.raises(InferenceError, match="solver holds 'app/base/0', got 'app/nosuch/3'"):
        impatient.generate(PROMPTS[:1], "app/nosuch/3")


def test_bad_requests_are_refused_at_once(live: Live, base: Checkpoint) -> None:
    serve_checkpoints(live.services, {"solver": base})
    too_long = Prompt(tuple(RZERO_SOLVER.messages("1 + " * 600 + "1")), 0, 1, Sampling(max_tokens=5))
    with pytest.raises(InferenceError, match=r"HTTP 400.*context holds 512"):
        _client(live).generate([too_long], base.id)
    url = f"{live.services.endpoint('solver')}/chat/completions"
    bad = {"model": "solver", "messages": [], "n": 0}
    for route, body in (("", bad), ("/batch", {"requests": [bad]})):
        response = httpx.post(url + route, json=body, headers=access.headers())
        assert response.status_code == 422
        assert {error["loc"][-1] for error in response.json()["detail"]} == {"messages", "n"}
    good = {"model": "solver", "messages": RZERO_SOLVER.messages("What is 3 + 4?")}
    response = httpx.post(
        f"{url}/batch", json={"requests": [good, {**good, "model": "other"}]}, headers=access.headers()
    )
    assert (response.status_code, response.json()["detail"]) == (404, "model: expected 'solver', got 'other'")


def test_the_openai_routes_need_the_key_and_return_checkpoint_and_logprobs(live: Live, base: Checkpoint) -> None:
    serve_checkpoints(live.services, {"solver": base})
    url = live.services.endpoint("solver")
    assert httpx.get(f"{url}/models").status_code == 401
    assert httpx.get(f"{url}/models", headers={"Authorization": "Bearer another"}).status_code == 401
    with httpx.Client(headers=access.headers()) as http:
        model = http.get(f"{url}/models").json()["data"][0]
    assert (model["id"], model["checkpoint"], model["sha256"]) == ("solver", base.id, base.sha256)
    body = {
        "model": "solver",
        "messages": RZERO_SOLVER.messages("What is 3 + 4?"),
        "temperature": 0,
        "logprobs": True,
    }
    chat = httpx.post(f"{url}/chat/completions", json=body, headers=access.headers()).json()
    choice = chat["choices"][0]
    assert (chat["model"], chat["policy_version"]) == ("solver", base.id)
    assert "\\boxed{" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert len(choice["logprobs"]["content"]) == choice["completion_tokens"] == chat["usage"]["completion_tokens"]


def test_a_damaged_checkpoint_is_refused_and_the_held_one_still_answers(
    live: Live, base: Checkpoint, tmp_path: Path
) -> None:
    serve_checkpoints(live.services, {"solver": base})
    damaged = tmp_path / "damaged"
    shutil.copytree(base.path, damaged)
    content = bytearray((damaged / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (damaged / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors has changed"):
        serve_checkpoints(live.services, {"solver": replace(base, id="app/damaged/0", path=str(damaged))})
    assert held_checkpoints(live)["solver"] == base.id
    assert _client(live).generate(PROMPTS[:1], base.id)
