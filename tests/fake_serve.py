"""A fake of Ray Serve in the test's own process: its REST API and applications with real embedded engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.inference.engines.embedded import TransformersEngine
from services.inference.openai_api import ChatBatchRequest, ChatRequest, chat_response
from services.inference.server.served import Served
from tests.http_server import Handler, listening


@dataclass
class FakeServe:
    """One replica for each application, which holds what the application's `user_config` says."""

    start: Path  # the model that every application holds at first
    url: str = ""
    swapped: list[tuple[str, Served]] = field(default_factory=list)  # application and what it has taken, in order
    refusal: str = ""  # of the next swap
    tokens: list[str | None] = field(default_factory=list)  # the Authorization of requests to Ray's dashboard
    _engines: dict[str, TransformersEngine] = field(default_factory=dict)
    _configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        served = Served(checkpoint="t/base/0", folder=self.start, sha256="0" * 64)
        for name in ("challenger", "solver"):
            self._engines[name] = TransformersEngine(self.start)
            deployment = {"name": "ModelServer", "user_config": served.model_dump(mode="json", exclude_defaults=True)}
            self._configs[name] = {"name": name, "deployments": [deployment]}

    def held(self, application: str) -> Served:
        return Served.model_validate(self._configs[application]["deployments"][0]["user_config"])

    def configure(self, configs: list[dict[str, Any]]) -> None:
        with self._busy:
            for config in configs:
                before, self._configs[config["name"]] = self.held(config["name"]), config
                after = self.held(config["name"])
                if after != before and not self.refusal:
                    self._engines[config["name"]].load(after.folder)
                    self.swapped.append((config["name"], after))

    def statuses(self) -> dict[str, Any]:
        status, health = ("DEPLOY_FAILED", "UNHEALTHY") if self.refusal else ("RUNNING", "HEALTHY")
        return {
            name: {
                "status": status,
                "message": self.refusal,
                "deployments": {"ModelServer": {"status": health, "message": ""}},
                "deployed_app_config": config,
            }
            for name, config in self._configs.items()
        }

    def chats(self, application: str, requests: list[ChatRequest]) -> list[Any] | None:
        """The replies, or None if another checkpoint is asked for."""
        with self._busy:
            held = self.held(application).checkpoint
            if any(request.policy_version != held for request in requests):
                return None
            groups = self._engines[application].generate([request.prompt() for request in requests])
        return [
            chat_response(application, held, group, request.logprobs, request.token_logprobs).model_dump(mode="json")
            for request, group in zip(requests, groups, strict=True)
        ]


@contextmanager
def fake_serve(start: Path) -> Iterator[FakeServe]:
    """Applications `challenger` and `solver`, which hold the model in `start`."""
    fake = FakeServe(start)

    class Serve(Handler):
        def do_PUT(self) -> None:
            fake.tokens.append(self.headers["Authorization"])
            fake.configure(self.json()["applications"])
            self.answer(200, {})

        def do_GET(self) -> None:
            if self.path.endswith("/models"):
                return self.answer(200, {"data": [{"id": self.path.split("/")[1], "batches": True}]})
            fake.tokens.append(self.headers["Authorization"])
            self.answer(200, {"applications": fake.statuses()})

        def do_POST(self) -> None:
            body, application = self.json(), self.path.split("/")[1]
            if self.path.endswith("/batch"):
                replies = fake.chats(application, ChatBatchRequest(**body).requests)
                self.answer(409 if replies is None else 200, {"responses": replies})
            else:
                replies = fake.chats(application, [ChatRequest(**body)])
                self.answer(409, {}) if replies is None else self.answer(200, replies[0])

    with listening(Serve) as url:
        fake.url = url
        yield fake
