"""The description shows what each answer looks like, and an answer may look so."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from services.api.app import create_app
from services.api.examples import EXAMPLES
from storage.session import Store


@pytest.fixture
def described(sqlite: Store, tmp_path: Path) -> dict[str, Any]:
    return create_app(sqlite, tmp_path, ask_for_keys=True).openapi()


def test_every_answer_has_an_example_that_is_whole_and_valid(described: dict[str, Any]) -> None:
    answers = list(_answers(described))
    assert len(answers) >= 34
    assert [said for said, answer in answers if "example" not in answer] == []
    schemas = {"components": {"schemas": _strict(described["components"]["schemas"])}}
    for said, answer in answers:
        found = [
            error.message for error in Draft202012Validator(answer["schema"] | schemas).iter_errors(answer["example"])
        ]
        assert found == [], said


def test_no_example_is_of_something_else(described: dict[str, Any]) -> None:
    shown = [answer.get("example") for _, answer in _answers(described)]
    singly = [each[0] if isinstance(each, list) else each for each in shown]
    assert [name for name, example in EXAMPLES.items() if example not in singly] == []


def _answers(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                if status.startswith("2") and "application/json" in response.get("content", {}):
                    yield f"{method} {path}", response["content"]["application/json"]


def _strict(schemas: dict[str, Any]) -> dict[str, Any]:
    """With nothing left out, and nothing that is no longer there."""
    found = deepcopy(schemas)
    for schema in found.values():
        if "properties" in schema:
            schema |= {"required": list(schema["properties"]), "additionalProperties": False}
    return found
