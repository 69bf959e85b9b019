"""The OpenAPI description has an example for each answer, and each example is a valid answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from services.api.app import create_app
from services.api.description import operations_of
from services.api.examples import EXAMPLES
from services.api.examples.problems import PROBLEMS
from services.api.problems import MEDIA_TYPE
from services.client import LARGEST_PAGE
from storage.export_columns import VOTE_COLUMNS, table_of
from storage.session import Store


@pytest.fixture
def description(sqlite: Store, tmp_path: Path) -> dict[str, Any]:
    return create_app(sqlite, tmp_path, ask_for_keys=True).openapi()


def test_every_answer_has_a_complete_and_valid_example(description: dict[str, Any]) -> None:
    answers = list(_answers(description))
    assert len(answers) >= 34
    assert [operation for operation, answer in answers if "example" not in answer] == []
    schemas = {"components": {"schemas": _strict(description["components"]["schemas"])}}
    for operation, answer in answers:
        errors = [
            error.message for error in Draft202012Validator(answer["schema"] | schemas).iter_errors(answer["example"])
        ]
        assert errors == [], operation


def test_every_example_is_the_example_of_some_answer(description: dict[str, Any]) -> None:
    examples = [answer.get("example") for _, answer in _answers(description)]
    # The example of a list is a list with one element.
    single_examples = [example[0] if isinstance(example, list) else example for example in examples]
    assert [name for name, example in EXAMPLES.items() if example not in single_examples] == []


def test_every_error_has_an_example_of_its_own_status(description: dict[str, Any]) -> None:
    errors = [
        (int(status), response["content"])
        for operation in operations_of(description)
        for status, response in operation["responses"].items()
        if status.startswith(("4", "5"))
    ]
    assert {status for status, _ in errors} == PROBLEMS.keys()
    for status, content in errors:
        assert list(content) == [MEDIA_TYPE]
        assert content[MEDIA_TYPE]["example"] == PROBLEMS[status]
        assert content[MEDIA_TYPE]["example"]["status"] == status


def test_types_are_written_plainly(description: dict[str, Any]) -> None:
    parameters = description["paths"]["/api/v1/runs/{run}/series"]["get"]["parameters"]
    schemas = {parameter["name"]: parameter["schema"] for parameter in parameters}
    assert schemas["over"]["enum"] == ["kept", "all", ""]
    assert schemas["name"]["type"] == "string"  # it has no null, which no query can send
    point = description["components"]["schemas"]["SeriesPoint"]["properties"]
    assert (point["lo"], point["name"]) == ({"type": ["number", "null"]}, {"type": "string"})
    assert "title" in description["components"]["schemas"]["Problem"]["properties"]  # a field of this name


def test_the_columns_of_exports_and_paging_are_described(description: dict[str, Any]) -> None:
    about = description["paths"]["/api/v1/runs/{run}/export"]["get"]["description"]
    assert table_of(VOTE_COLUMNS) in about
    assert f"at most\n{LARGEST_PAGE}." in description["info"]["description"]
    tags = {tag for operation in operations_of(description) for tag in operation["tags"]}
    assert set(re.findall(r"\(#tag/(\w+)\)", description["info"]["description"])) <= tags


def _answers(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                if status.startswith("2") and "application/json" in response.get("content", {}):
                    yield f"{method} {path}", response["content"]["application/json"]


def _strict(schemas: dict[str, Any]) -> dict[str, Any]:
    """The same schemas, with every property required and no others allowed."""
    strict = deepcopy(schemas)
    for schema in strict.values():
        if "properties" in schema:
            schema |= {"required": list(schema["properties"]), "additionalProperties": False}
    return strict
