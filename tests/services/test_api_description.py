"""What the OpenAPI description says of answers, errors, types, exports and paging."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.api.app import PREFIX, create_app
from services.api.description import operations_of
from services.api.problems import MEDIA_TYPE, Problem
from services.client import LARGEST_PAGE
from storage.exports.columns import VOTE_COLUMNS, table_of
from storage.session import Store

DOCUMENTED_ERRORS = {400, 401, 403, 404, 408, 409, 413, 415, 416, 422, 503}


@pytest.fixture
def description(sqlite: Store, tmp_path: Path) -> dict[str, Any]:
    return create_app(sqlite, tmp_path, ask_for_keys=True).openapi()


def test_every_answer_has_a_schema_with_types(description: dict[str, Any]) -> None:
    answers = list(_answers(description))
    assert len(answers) >= 60
    schemas = description["components"]["schemas"]
    for operation, answer in answers:
        names = re.findall(r"#/components/schemas/(\w+)", json.dumps(answer["schema"]))
        assert "type" in answer["schema"] or names, operation
        assert set(names) <= schemas.keys(), operation
    for name, schema in schemas.items():
        assert {"properties", "enum", "const", "type", "anyOf", "oneOf"} & schema.keys(), name


def test_every_route_names_its_answers_and_errors(description: dict[str, Any]) -> None:
    for path, methods in description["paths"].items():
        for method in methods.values() if path.startswith(PREFIX) else ():
            assert {"401", "403", "422"} <= method["responses"].keys(), path
            assert {"200", "201", "202"} & method["responses"].keys(), path
            assert method["summary"]
            assert method["description"]


def test_every_error_has_an_example_of_its_own_status(description: dict[str, Any]) -> None:
    errors = [
        (int(status), response["content"])
        for operation in operations_of(description)
        for status, response in operation["responses"].items()
        if status.startswith(("4", "5"))
    ]
    assert {status for status, _ in errors} == DOCUMENTED_ERRORS
    for status, content in errors:
        assert list(content) == [MEDIA_TYPE]
        assert Problem.model_validate(content[MEDIA_TYPE]["example"]).status == status


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
