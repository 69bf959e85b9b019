"""A client of the REST API, for programs and for `coevo questions`.

api = ApiClient("http://127.0.0.1:8080")
for question in api.questions("demo", 1, verdict=["kept"], sort="-p_hat"):
    print(question.p_hat, question.text)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from core.errors import CoevoError
from services.api.pages import LARGEST_PAGE
from services.api.schemas import DriftPoint, Question, QuestionDetail, Run, Statistics


class ApiError(CoevoError):
    """What the API refused, in its words, or that it did not answer."""


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Talks to the API at `url`, with a key where it asks for one. Every method raises `ApiError`."""

    url: str
    key: str | None = None
    timeout_s: float = 30.0

    def runs(self) -> Iterator[Run]:
        """All runs, the newest first."""
        return (Run.model_validate(item) for item in self._items("/runs", {}))

    def questions(self, run: str, iteration: int, **wanted: Any) -> Iterator[Question]:
        """The questions of an iteration, a page at a time; `wanted` is what the route takes (docs/api.md)."""
        path = f"/runs/{run}/iterations/{iteration}/questions"
        return (Question.model_validate(item) for item in self._items(path, wanted))

    def question(self, run: str, iteration: int, index: int) -> QuestionDetail:
        """One with every vote."""
        return QuestionDetail.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/questions/{index}", {}))

    def statistics(self, run: str, iteration: int) -> Statistics:
        return Statistics.model_validate(self._get(f"/runs/{run}/iterations/{iteration}/statistics", {}))

    def drift(self, run: str) -> list[DriftPoint]:
        return [DriftPoint.model_validate(point) for point in self._get(f"/runs/{run}/drift", {})]

    def _items(self, path: str, wanted: dict[str, Any]) -> Iterator[Any]:
        given = {"limit": LARGEST_PAGE, **{name: value for name, value in wanted.items() if value is not None}}
        while True:
            page = self._get(path, given)
            yield from page["items"]
            if page["next"] is None:
                return
            given = {**given, "after": page["next"]}

    def _get(self, path: str, wanted: dict[str, Any]) -> Any:
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        url = f"{self.url.rstrip('/')}/api/v1{path}"
        try:
            response = httpx.get(url, params=wanted, headers=headers, timeout=self.timeout_s, trust_env=False)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ApiError(f"{self.url}: no answer from the API (coevo api serves it): {error}") from error
        if response.status_code != 200:
            raise ApiError(f"{self.url}: {_reason(response)}")
        return response.json()


def _reason(response: httpx.Response) -> str:
    if response.headers.get("content-type") != "application/problem+json":
        return f"HTTP {response.status_code}, which is not an answer of coevo's API"
    return f"HTTP {response.status_code}: {response.json()['detail']}"
