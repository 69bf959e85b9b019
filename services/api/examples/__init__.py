"""One complete example of each of the API's answers, from a run called demo, for the API's description."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from services.api.examples import audits, evaluations, questions, runs, settings, training

EXAMPLES = (
    runs.EXAMPLES | questions.EXAMPLES | evaluations.EXAMPLES | audits.EXAMPLES | settings.EXAMPLES | training.EXAMPLES
)


def install(app: FastAPI) -> None:
    """Add the examples to the API's description, to every answer that is JSON. The example of a list has one entry.

    They are added here and not in the answers' classes, because some of these belong to the store or to `core`, which
    do not know the API.
    """
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            for operation in (operation for path in plain()["paths"].values() for operation in path.values()):
                _show(operation["responses"])
        return plain()

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's documentation does this too


def _show(responses: dict[str, Any]) -> None:
    for status, response in responses.items():
        answer = response.get("content", {}).get("application/json")
        if answer and status.startswith("2"):
            schema = answer["schema"]
            items = schema.get("items")
            name = (items or schema).get("$ref", "").rpartition("/")[2]
            if name in EXAMPLES:
                answer["example"] = [EXAMPLES[name]] if items else EXAMPLES[name]
