"""Fake inference applications whose answers a test chooses, behind the part of Serve's API that a stage uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from orchestrator.installation.home import Services
from services.inference.engines.base import Completion
from services.inference.openai_api import chat_response
from tests.http_server import Handler, listening


@contextmanager
def fake_applications(
    texts_by_question: Mapping[str, Sequence[str]],
) -> Iterator[tuple[Services, list[dict[str, Any]]]]:
    """An application answers these questions with these texts, in turn one for each sample, and any other question with
    texts that have no answer. Yields the applications' addresses and the requests that they got."""
    requests: list[dict[str, Any]] = []

    def texts_of(body: dict[str, Any]) -> Sequence[str]:
        requests.append(body)
        message = body["messages"][-1]["content"]
        known = next((question for question in texts_by_question if question in message), None)
        return ["no idea"] * body["n"] if known is None else texts_by_question[known][: body["n"]]

    with answering(texts_of) as services:
        yield services, requests


@contextmanager
def answering(texts_of: Callable[[dict[str, Any]], Sequence[str]], *, batches: bool = False) -> Iterator[Services]:
    """The applications answer a request with the texts that this function makes of its body. Yields their addresses.
    With `batches`, they have the route that takes several requests at once."""
    configured: dict[str, Any] = {"applications": []}

    def reply_to(body: dict[str, Any]) -> dict[str, Any]:
        completions = [Completion(text, (1, 2, 3), (0.0,) * 3, "stop", 0.5) for text in texts_of(body)]
        return chat_response(body["model"], body["policy_version"], completions, logprobs=False).model_dump()

    class Answering(Handler):
        def do_PUT(self) -> None:
            configured.update(self.json())
            self.answer(200, {})

        def do_GET(self) -> None:
            if "placement_groups" in self.path:
                self.answer(200, {"data": {"result": {"result": []}}})
            elif self.path.endswith("/models"):
                self.answer(200, {"data": [{"id": "solver", "batches": batches}]})
            else:
                replica = {"deployment_config": {"ray_actor_options": {"num_cpus": 2.0}}, "replicas": [{}]}
                healthy = {"status": "RUNNING", "deployments": {"ModelServer": {"status": "HEALTHY", **replica}}}
                applications = {
                    config["name"]: {**healthy, "deployed_app_config": config} for config in configured["applications"]
                }
                self.answer(200, {"applications": applications})

        def do_POST(self) -> None:
            body = self.json()
            if self.path.endswith("/batch"):
                self.answer(200, {"responses": [reply_to(request) for request in body["requests"]]})
            else:
                self.answer(200, reply_to(body))

    with listening(Answering) as url:
        yield Services("", url, url, "", "token", {})
