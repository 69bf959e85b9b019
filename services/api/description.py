"""The API's OpenAPI description: the text at its top, an example of each error, and plain types."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI

from services.api.problems import MEDIA_TYPE, problem
from services.client import LARGEST_PAGE

INTRODUCTION = f"""Runs of the co-evolution loop, their questions with every vote, labels, checkpoints and figures. The
[dashboard](/) shows the same. This page is made from [/api/openapi.json](/api/openapi.json).

# Keys

`coevo up` prints the address of the dashboard, which contains a key with every scope. The home keeps the same key in
`secrets/api`. `coevo store keys add NAME` makes a key for another person. Send a key in a header with every request:

```
curl -H "Authorization: Bearer $(cat .coevo/secrets/api)" http://127.0.0.1:8080/api/v1/runs
```

A key's scopes say what it may do: `read` is for the routes that only read, `run` starts and ends
[runs](#tag/triggers), `label` is for [labelling](#tag/labelling), and `admin` for keys. An API that was started with
`--no-keys` needs none. Requests are then answered on its own machine only.

# Paging

A list whose answer has `items` and `next` comes in pages. `limit` is the number of entries per page, at most
{LARGEST_PAGE}. `next` is the value of `after` for the following page, and null on the last page. It marks a position in
the order, so entries that are added between two requests do not shift the pages. All rows of a run at once are an
[export](#tag/exports).

# Figures

Shares lie in [0, 1] and come with their 95% interval, `lo` to `hi`, and with `n`, the number of items that they rest
on. A figure that is not known is null.

# Errors

Errors are `application/problem+json`. `detail` says in a sentence what is wrong, and `errors` lists the fields that are
wrong, if there are any."""

_VALUES = ("default", "enum", "const", "examples")  # what in a schema is no schema


def install(app: FastAPI) -> None:
    """Have the application describe its errors with their media type and an example, and plain types."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            description = plain()
            for operation in operations_of(description):
                for status, response in operation["responses"].items():
                    if status.startswith(("4", "5")):
                        # FastAPI gives errors the media type of the route's other answers, and no example.
                        [answer] = response["content"].values()
                        error = problem(int(status), HTTPStatus(int(status)).description)
                        response["content"] = {MEDIA_TYPE: {**answer, "example": error.model_dump()}}
                for parameter in operation.get("parameters", []):
                    schema = parameter["schema"]
                    if "anyOf" in schema:  # a parameter that is left out is null in Python only
                        variants = [variant for variant in schema["anyOf"] if variant != {"type": "null"}]
                        schema = schema | {"anyOf": variants}
                    parameter["schema"] = simple(schema)
            schemas = description["components"]["schemas"]
            schemas.update({name: simple(schema) | {"title": name} for name, schema in schemas.items()})
        return plain()

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's documentation does this too


def operations_of(description: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (operation for path in description["paths"].values() for operation in path.values())


def simple(schema: Any) -> Any:
    """The same schema in fewer words: `anyOf` of one variant is this variant, a variant that may be null has the type
    `[TYPE, "null"]`, several sets of texts are one, and nothing repeats its name as its title."""
    if isinstance(schema, list):
        return [simple(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: value if name in _VALUES else simple(value) for name, value in schema.items() if name != "title"}
    if "properties" in schema:  # whose names may be such words
        result["properties"] = {name: simple(part) for name, part in schema["properties"].items()}
    return _merged(result) if "anyOf" in result else result


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    variants: list[dict[str, Any]] = [variant for variant in schema["anyOf"] if variant != {"type": "null"}]
    texts = [variant.get("enum") or [variant["const"]] for variant in variants if {"enum", "const"} & variant.keys()]
    if len(texts) == len(variants) > 1:
        variants = [{"type": "string", "enum": [text for group in texts for text in group]}]
    nullable = {"type": "null"} in schema["anyOf"]
    if len(variants) > 1 or (nullable and "type" not in variants[0]):
        return schema
    [variant] = variants
    if nullable:
        variant = variant | {"type": [variant["type"], "null"]}
        variant |= {"enum": [*variant["enum"], None]} if "enum" in variant else {}
    return {name: value for name, value in schema.items() if name != "anyOf"} | variant
