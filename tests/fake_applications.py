"""Fake inference applications, which say what a test has them say, behind as much of Serve's API as a stage asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from orchestrator.installation.home import Services
from services.inference.engines.base import Completion
from services.inference.openai_api import chat_response
from tests.http_server import Handler, listening


@contextmanager
def fake_applications(says: Mapping[str, Sequence[str]]) -> Iterator[tuple[Services, list[dict[str, Any]]]]:
    """To a question of `says` an application gives its texts, in order of sample, and to another one none with an
    answer. Yields their addresses and what they were asked."""
    asked: list[dict[str, Any]] = []
    configured: dict[str, Any] = {"applications": []}

    class Answering(Handler):
        def do_PUT(self) -> None:
            configured.update(self.json())
            self.answer(200, {})

        def do_GET(self) -> None:
            if self.path.endswith("/models"):
                self.answer(200, {"data": [{"id": "solver"}]})
            else:
                healthy = {"status": "RUNNING", "deployments": {"ModelServer": {"status": "HEALTHY"}}}
                applications = {
                    one["name"]: {**healthy, "deployed_app_config": one} for one in configured["applications"]
                }
                self.answer(200, {"applications": applications})

        def do_POST(self) -> None:
            body = self.json()
            asked.append(body)
            question = next((one for one in says if one in body["messages"][-1]["content"]), None)
            texts = ["no idea"] * body["n"] if question is None else says[question]
            completions = [Completion(text, (1, 2, 3), (0.0,) * 3, "stop", 0.5) for text in texts]
            reply = chat_response(body["model"], body["policy_version"], completions, logprobs=False)
            self.answer(200, reply.model_dump())

    with listening(Answering) as url:
        yield Services("", url, url, "", "token", {}), asked
